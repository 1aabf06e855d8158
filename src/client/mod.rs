//! What the crate knows about clients: whose errors it recognises, and adapters.

mod error_type;
mod recognise;
#[cfg(feature = "reqwest")]
pub mod reqwest;

pub use self::error_type::BoxError;
pub(crate) use self::{
    error_type::{ErrorType, KeptError, as_error, keep_error},
    recognise::{Kind, Recognised, Trust, find, recognise},
};
