//! What the token budget earns, spends, gives back and refuses.

mod earning;
mod properties;
mod settings;
mod spending;
#[path = "../support/budget.rs"]
mod support;
mod threads;
mod time;
