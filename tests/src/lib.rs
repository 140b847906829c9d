//! Starts the real parts for tests: scripted model, Envoy, sidecar.
