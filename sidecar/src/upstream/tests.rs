//! Branch `loop` brings them.
