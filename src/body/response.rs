use super::into_bytes;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;
use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

pin_project! {
    /// The response body that the caller receives.
    ///
    /// Either the inner service's own body, streamed through untouched and never buffered, or that
    /// of an answer that the layer gave itself. Once it has been handed over nothing is retried: an
    /// error in the middle of it is the caller's to see.
    ///
    /// It is `Unpin` only when `B` is.
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        Inner {
            #[pin]
            body: B,
        },
        Own {
            #[pin]
            body: Full<Bytes>,
        },
    }
}

impl<B> ResponseBody<B> {
    /// The inner service's body.
    pub(crate) fn inner(body: B) -> Self {
        let kind = Kind::Inner { body };
        Self { kind }
    }

    /// The body of the layer's own answer.
    pub(crate) fn own(body: Bytes) -> Self {
        let body = Full::new(body);
        let kind = Kind::Own { body };
        Self { kind }
    }

    /// The inner service's body, or the bytes of the layer's own answer.
    #[cfg(feature = "reqwest")]
    pub(crate) fn into_inner_or_bytes(self) -> Result<B, Bytes> {
        match self.kind {
            Kind::Inner { body } => Ok(body),
            Kind::Own { body } => Err(body.into_inner().unwrap_or_default()),
        }
    }

    /// Whether this is the body of an answer that the layer gave itself.
    pub fn is_own(&self) -> bool {
        matches!(self.kind, Kind::Own { .. })
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProj::Inner { body } => body
                .poll_frame(cx)
                .map(|next| next.map(|next| next.map(into_bytes))),
            KindProj::Own { body } => body
                .poll_frame(cx)
                .map(|next| next.map(|next| next.map_err(|never| match never {}))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Own { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Own { body } => body.size_hint(),
        }
    }
}

impl<B> Default for ResponseBody<B> {
    /// An empty body, which counts as the layer's own.
    fn default() -> Self {
        Self::own(Bytes::new())
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            Kind::Inner { .. } => "ResponseBody::Inner(..)",
            Kind::Own { .. } => "ResponseBody::Own(..)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf;
    use http::HeaderMap;
    use http_body_util::{BodyExt, Empty};
    use std::task::Waker;

    #[test]
    fn an_inner_body_streams_through_with_its_hints_and_trailers() {
        let inner = Full::new(Buf::chain(&b"abc"[..], &b"def"[..]));
        let inner = inner.with_trailers(std::future::ready(Some(Ok(HeaderMap::new()))));
        let mut body = ResponseBody::inner(Box::pin(inner));
        assert!(!body.is_own());
        assert!(!body.is_end_stream());
        assert_eq!(body.size_hint().lower(), 6);
        let mut frames = std::iter::from_fn(|| {
            let mut cx = Context::from_waker(Waker::noop());
            match Pin::new(&mut body).poll_frame(&mut cx) {
                Poll::Ready(next) => next.map(|next| next.unwrap_or_else(|never| match never {})),
                Poll::Pending => None,
            }
        });
        assert_eq!(frames.next().unwrap().into_data().unwrap(), "abcdef");
        assert!(frames.next().unwrap().is_trailers());
        assert!(frames.next().is_none());
    }

    #[tokio::test]
    async fn the_layers_own_body_has_its_length() {
        let body = ResponseBody::<Empty<Bytes>>::own(Bytes::from_static(b"gave up"));
        assert!(body.is_own());
        assert!(!body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(7));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "gave up");
    }

    #[test]
    fn the_default_is_empty_whatever_the_inner_type_is() {
        struct NoBody;
        assert!(ResponseBody::<NoBody>::default().is_own());
        assert!(ResponseBody::<Empty<Bytes>>::default().is_end_stream());
        assert_eq!(
            format!("{:?}", ResponseBody::<NoBody>::own("secret".into())),
            "ResponseBody::Own(..)"
        );
    }
}
