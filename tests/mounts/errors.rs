//! Whatever the inner service calls an error.

use crate::{
    layer,
    support::{Body, BoxError, get, info, request, script::Script, send, steady},
};
use http::{Request, Response};
use std::{
    cell::Cell,
    convert::Infallible,
    fmt,
    io::{self, ErrorKind},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};
use tower::{Layer, Service, ServiceBuilder, service_fn};
use tower_retry_budget::{
    RetryBudget,
    body::ReplayBody,
    policy::{Outcome, Verdict},
    reason::Cause,
};

/// A service that fails once with an error made by `fail`.
fn failing_once<E>(
    fail: fn() -> E,
) -> (
    Arc<AtomicUsize>,
    impl Service<Request<ReplayBody<Body>>, Response = Response<Body>, Error = E, Future: Send> + Clone,
)
where
    E: Send,
{
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let service = service_fn(move |_: Request<ReplayBody<Body>>| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                return Err(fail());
            }
            Ok(Response::new(Body::default()))
        }
    });
    (sent, service)
}

/// A user's own error, which is no `std::error::Error`, nor `Debug`, `Clone` or `Sync`.
enum Mine {
    Busy(#[allow(dead_code, reason = "makes it not `Sync`")] Cell<u8>),
    Broken,
}

#[tokio::test(start_paused = true)]
async fn passes_on_an_error_that_it_does_not_know() {
    let (sent, service) = failing_once(|| Mine::Busy(Cell::new(1)));
    let Err(Mine::Busy(_)) = send(&layer().layer(service), get()).await else {
        panic!("not the service's own error");
    };
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn retries_such_an_error_when_the_users_classifier_says_so() {
    let policy = steady().classifier(|outcome: &Outcome<'_>| {
        let error = outcome.downcast_service_error::<Mine>()?;
        matches!(error, Mine::Busy(_)).then(|| Verdict::retry(Cause::Other))
    });
    let layer = layer().policy(policy.build().expect("a valid policy"));
    let (sent, service) = failing_once(|| Mine::Busy(Cell::new(1)));
    let Ok(response) = send(&layer.layer(service), get()).await else {
        panic!("not retried");
    };
    assert_eq!(info(&response).attempts, 2);
    assert_eq!(sent.load(Ordering::SeqCst), 2);

    let (sent, service) = failing_once(|| Mine::Broken);
    let Err(Mine::Broken) = send(&layer.layer(service), get()).await else {
        panic!("not the service's own error");
    };
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn mounts_over_a_service_that_cannot_fail() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let service = service_fn(move |_: Request<ReplayBody<Body>>| {
        let mut response = Response::new(Body::default());
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            *response.status_mut() = http::StatusCode::BAD_GATEWAY;
        }
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let Ok(response) = send(&layer().layer(service), get()).await;
    assert_eq!(response.status(), 200);
    assert_eq!(sent.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn recognises_an_error_in_whatever_it_is_wrapped() {
    #[derive(Debug)]
    struct Wrapped(io::Error);
    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("wrapped")
        }
    }
    impl std::error::Error for Wrapped {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let refused = || io::Error::from(ErrorKind::ConnectionRefused);

    // Plain, boxed, shared: proof that nothing was processed, so a POST is repeated.
    let (plain, service) = failing_once(|| io::Error::from(ErrorKind::ConnectionRefused));
    send(&layer().layer(service), request("POST", ""))
        .await
        .expect("a response");
    let (boxed, service) =
        failing_once(|| -> BoxError { io::Error::from(ErrorKind::ConnectionRefused).into() });
    send(&layer().layer(service), request("POST", ""))
        .await
        .expect("a response");
    let (shared, service) = failing_once(|| -> Arc<dyn std::error::Error + Send + Sync> {
        Arc::new(io::Error::from(ErrorKind::ConnectionRefused))
    });
    send(&layer().layer(service), request("POST", ""))
        .await
        .expect("a response");
    for sent in [plain, boxed, shared] {
        assert_eq!(sent.load(Ordering::SeqCst), 2);
    }

    // What caused a stranger's error need not have happened to this request: no proof.
    for (method, attempts) in [("POST", 1), ("GET", 2)] {
        let (sent, service) = failing_once(|| -> BoxError {
            Wrapped(io::Error::from(ErrorKind::ConnectionRefused)).into()
        });
        let outcome = send(&layer().layer(service), request(method, "")).await;
        assert_eq!(outcome.is_ok(), attempts == 2);
        assert_eq!(sent.load(Ordering::SeqCst), attempts);
    }

    // A type of the user's own is looked into once the policy knows it.
    let (sent, service) = failing_once(|| Wrapped(io::Error::from(ErrorKind::ConnectionRefused)));
    let error = send(&layer().layer(service), get())
        .await
        .expect_err("unknown");
    assert_eq!(error.0.kind(), refused().kind());
    assert_eq!(sent.load(Ordering::SeqCst), 1);
    let policy = steady().error_type::<Wrapped>().build();
    let knowing = layer().policy(policy.expect("a valid policy"));
    let (sent, service) = failing_once(|| Wrapped(io::Error::from(ErrorKind::ConnectionRefused)));
    send(&knowing.layer(service), get())
        .await
        .expect("a response");
    assert_eq!(sent.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn mounts_between_layers_that_change_the_error() {
    let script = Script::new([500, 500, 500]);
    let service = ServiceBuilder::new()
        .map_err(|error: Mine| match error {
            Mine::Busy(_) => "busy",
            Mine::Broken => "broken",
        })
        .layer(layer())
        .map_err(|_: BoxError| Mine::Broken)
        .service(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 503);
    assert_eq!(script.count(), 3);
    Script::then(&script, crate::support::script::Reply::Error("gone".into()));
    let error = send(&service, get()).await.expect_err("an error");
    assert_eq!(error, "broken");
    assert_eq!(script.count(), 4);
}

/// A service that is nothing but `Clone`: no thread but its own may have it.
#[derive(Clone)]
struct Local {
    sent: Rc<Cell<u32>>,
    ready: bool,
}

impl Service<Request<ReplayBody<LocalBody>>> for Local {
    type Response = Response<LocalBody>;
    type Error = Rc<str>;
    type Future = Pin<Box<dyn Future<Output = Result<Response<LocalBody>, Rc<str>>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Rc<str>>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<ReplayBody<LocalBody>>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready));
        let sent = Rc::clone(&self.sent);
        Box::pin(async move {
            sent.set(sent.get() + 1);
            let status = if sent.get() == 1 { 502 } else { 200 };
            let response = Response::builder().status(status);
            let body = LocalBody(Rc::default());
            response
                .body(body)
                .map_err(|error| error.to_string().into())
        })
    }
}

/// An empty body that is neither `Send` nor `Sync`.
struct LocalBody(#[allow(dead_code, reason = "makes it not `Send`")] Rc<()>);

impl http_body::Body for LocalBody {
    type Data = bytes::Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Infallible>>> {
        Poll::Ready(None)
    }
}

#[tokio::test(start_paused = true)]
async fn asks_nothing_of_the_inner_service_but_clone() {
    let local = Local {
        sent: Rc::default(),
        ready: false,
    };
    let service = layer().layer(local.clone());
    let request = get().map(|_| LocalBody(Rc::default()));
    let response = send(&service, request).await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(local.sent.get(), 2);
}

#[test]
fn is_send_and_sync_where_the_inner_service_is() {
    fn sendable<T: Send + 'static>() {}
    fn shareable<T: Send + Sync + Clone + 'static>() {}
    type Future<S, B> = <RetryBudget<S> as Service<Request<B>>>::Future;
    shareable::<tower_retry_budget::RetryBudgetLayer>();
    shareable::<RetryBudget<Script>>();
    shareable::<RetryBudget<axum::routing::Route>>();
    sendable::<Future<Script, Body>>();
    // axum's body is not `Sync`, and need not be.
    sendable::<Future<axum::routing::Route, axum::body::Body>>();
}
