//! Policy.

pub mod retry_after;

pub use self::retry_after::{Hint, Unit, VendorField};
