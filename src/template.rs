//! What is kept of a request so that it can be sent again.

use crate::{
    body::{BoxError, Replay, ReplayBody},
    policy::RequestView,
};
use http::{HeaderName, HeaderValue, request::Parts};
use http_body::Body;

/// The caller's original head, and the side of the body that can produce it again.
pub(crate) struct Template<B> {
    head: Parts,
    pub(crate) body: Replay<B>,
}

impl<B> Template<B> {
    /// Keeps a copy of a head that nothing has been stamped on yet.
    pub(crate) fn new(head: &Parts, body: Replay<B>) -> Self {
        let head = head.clone();
        Self { head, body }
    }

    pub(crate) fn view(&self) -> RequestView<'_> {
        RequestView {
            method: &self.head.method,
            uri: &self.head.uri,
            headers: &self.head.headers,
            extensions: &self.head.extensions,
        }
    }

    /// Sets a secret header of all requests from here on.
    pub(crate) fn set(&mut self, name: HeaderName, mut value: HeaderValue) {
        value.set_sensitive(true);
        self.head.headers.insert(name, value);
    }

    /// Leaves a header out of all requests from here on.
    pub(crate) fn leave_out(&mut self, name: HeaderName) {
        self.head.headers.remove(name);
    }
}

impl<B> Template<B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// The request of the next attempt. `last` when none can follow it.
    pub(crate) fn request(&mut self, last: bool) -> (Parts, ReplayBody<B>) {
        (self.head.clone(), self.body.next(last))
    }
}
