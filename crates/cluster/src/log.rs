//! Logging: human-readable lines on standard error, `RUST_LOG` chooses what.

use tracing_subscriber::EnvFilter;

pub fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        EnvFilter::new(
            "info,fjall=warn,lsm_tree=warn,kube_client=warn,hickory_server=warn,hyper=warn,h2=warn,boringtun=off",
        )
    });
    // A line that cannot be written (the disk is full) is lost. Complaining of it on the same stream would panic, and take
    // whichever thread logged with it.
    let lines = tracing_subscriber::fmt().log_internal_errors(false);
    lines.with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}
