//! Every test of the sidecar that needs more than one module, in one binary.

mod sandbox;
