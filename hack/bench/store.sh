# The parts below the API server's handlers, each alone.
say "the store beside raw append and fdatasync, and etcd"
cargo bench --quiet -p ferry-store --bench store -- --folder "$work/store"
say "who is asking, may they, and is it their turn"
cargo bench --quiet -p ferry-auth --features testing --bench auth
cargo bench --quiet -p ferry-fairness --bench fairness
say "admission policies"
cargo bench --quiet -p ferry-admission --bench policies | tee -a "$work/lines"
say "the API server's handlers, before TLS"
cargo bench --quiet -p ferry-apiserver --bench handler | tee -a "$work/lines"
