# It takes as long as all the others together.
say "the scheduler on fake nodes"
cargo bench --quiet -p ferry --bench scheduler -- --folder "$work"
