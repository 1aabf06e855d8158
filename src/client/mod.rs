//! What the crate knows about clients: whose errors it recognises, and adapters.

mod error_type;
mod recognise;

pub(crate) use self::{
    error_type::{BoxError, ErrorType, KeptError, as_error, keep_error},
    recognise::{Kind, Recognised, recognise},
};
