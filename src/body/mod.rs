//! Request and response bodies.
