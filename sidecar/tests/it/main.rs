//! Every test of the sidecar that needs more than one module, in one binary.

#[cfg(test)]
mod sandbox;
