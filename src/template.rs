//! What is kept of a request so that it can be sent again.

mod packed;

use self::packed::Packed;
use crate::{
    body::{BoxError, Replay, ReplayBody},
    policy::RequestView,
};
use http::{Extensions, HeaderName, HeaderValue, Method, Request, Uri, Version, request::Parts};
use http_body::Body;

/// The caller's original head, and the side of the body that can produce it again.
pub(crate) struct Template<B> {
    method: Method,
    uri: Uri,
    version: Version,
    headers: Packed,
    extensions: Extensions,
    pub(crate) body: Replay<B>,
}

impl<B> Template<B> {
    /// Keeps a copy of a head that nothing has been stamped on yet.
    pub(crate) fn new(head: &Parts, body: Replay<B>) -> Self {
        Self {
            method: head.method.clone(),
            uri: head.uri.clone(),
            version: head.version,
            headers: Packed::new(&head.headers),
            extensions: head.extensions.clone(),
            body,
        }
    }

    pub(crate) fn view(&self) -> RequestView<'_> {
        RequestView {
            method: &self.method,
            uri: &self.uri,
            headers: self.headers.get(),
            extensions: &self.extensions,
        }
    }

    /// Sets a secret header of all requests from here on.
    pub(crate) fn set(&mut self, name: HeaderName, mut value: HeaderValue) {
        value.set_sensitive(true);
        self.headers.get_mut().insert(name, value);
    }

    /// Leaves a header out of all requests from here on.
    pub(crate) fn leave_out(&mut self, name: HeaderName) {
        self.headers.get_mut().remove(name);
    }
}

impl<B> Template<B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// The request of the next attempt. `last` when none can follow it.
    pub(crate) fn request(&mut self, last: bool) -> (Parts, ReplayBody<B>) {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = self.method.clone();
        head.uri = self.uri.clone();
        head.version = self.version;
        head.headers = self.headers.to_map();
        head.extensions = self.extensions.clone();
        (head, self.body.next(last))
    }
}
