//! Request and response bodies.
//!
//! [`ReplayBody`] is the request body that the inner service receives. It keeps what is read of the
//! caller's body, up to a limit, so that another attempt can carry the same bytes again:
//!
//! - **lazy**: the caller's body is read only when the inner service asks for the next frame, and
//!   not at all while a retry waits;
//! - **never shortened**: an attempt carries the whole body, with its trailers, or it is not made;
//! - **bounded**: beyond the limit for one request, or the limit for the whole layer, what was kept
//!   is dropped at once. The attempt under way streams on as if nothing had happened, in constant
//!   memory; it is just not followed by another one;
//! - **one reader**: when a retry is decided on, older handles of the body fail with [`Superseded`],
//!   so that a connection that still holds one lets go of it.
//!
//! A body that is too large to keep, such as a file, can be made anew for each attempt: see
//! [`BodyFactory`].
//!
//! [`ResponseBody`] is what the caller receives: the inner service's own body, streamed through and
//! never buffered, or the one of the layer's own answer.

mod buffer;
mod cell;
mod error;
mod factory;
mod gate;
mod handle;
mod memory;
mod replay;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub use self::{
    error::{DeadlineExceeded, Superseded},
    factory::BodyFactory,
    request::ReplayBody,
    response::ResponseBody,
};
pub(crate) use self::{memory::ReplayMemory, replay::Replay};

pub use crate::client::BoxError;

/// Turns the data of a frame into [`Bytes`](bytes::Bytes), without a copy when it is that already.
fn into_bytes<D: bytes::Buf>(frame: http_body::Frame<D>) -> http_body::Frame<bytes::Bytes> {
    frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))
}
