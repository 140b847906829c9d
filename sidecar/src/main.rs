//! The command `otari-sidecar`.
fn main() {}
