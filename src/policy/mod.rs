//! Policy.

pub mod backoff;
pub mod retry_after;

pub use self::{
    backoff::{Backoff, BackoffBuilder, Jitter},
    retry_after::{Hint, Unit, VendorField},
};
