//! What requests cost at the handler: the whole pipeline over the embedded store, without TLS and HTTP. JSON lines.
//!
//! `cargo bench -p ferry-apiserver --bench handler -- [--count 20000] [--only write,list,store,watch]`

mod kit;
mod lists;
mod store;
mod watches;
mod writes;

/// As the binary has it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |flag: &str| arguments.iter().position(|have| have == flag).and_then(|at| arguments.get(at + 1));
    let count: usize = after("--count").and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let only = after("--only").map(String::as_str);
    let wanted = |part: &str| only.is_none_or(|only| only.split(',').any(|have| have == part));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        // Each on a server of its own: what one leaves behind is no burden to the next.
        if wanted("write") {
            writes::run(count).await;
        }
        if wanted("list") {
            lists::run().await;
        }
        if wanted("watch") {
            watches::run().await;
        }
        if wanted("store") {
            store::run().await;
        }
    });
}
