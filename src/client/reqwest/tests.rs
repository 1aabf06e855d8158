//! What real errors of reqwest are taken for, and how bodies reach it.

use super::into_reqwest_request;
use crate::{
    body::{BoxError, Replay, ReplayBody, ReplayMemory},
    client::{Kind, Trust, recognise},
    reason::{Cause, Processed},
};
use bytes::Bytes;
use http::Request;
use http_body::Body;
use http_body_util::{BodyExt, Channel, Empty, Full};
use reqwest::{
    Client, ClientBuilder, Error,
    dns::{Addrs, Name, Resolve, Resolving},
};
use std::{
    future::{pending, ready},
    io,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

const NO_REDIRECTS: Trust = Trust {
    proof: true,
    reqwest: true,
    outermost: false,
};

const REFUSED: Kind = Kind::Transient(Cause::Unprocessed, Processed::No);
const BROKEN: Kind = Kind::Transient(Cause::Transport, Processed::Unknown);
const LATE: Kind = Kind::Transient(Cause::Timeout, Processed::Unknown);
const SHORT: Duration = Duration::from_millis(50);

fn builder() -> ClientBuilder {
    Client::builder().no_proxy().retry(reqwest::retry::never())
}

fn client() -> Client {
    builder().build().expect("a client")
}

/// Answers every connection with these bytes once it has read something, and closes it.
async fn server(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    format!("http://{address}/")
}

/// Reads everything and never answers.
async fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                while stream.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {}
            });
        }
    });
    format!("http://{address}/")
}

fn seen(error: &Error) -> Option<Kind> {
    recognise(error, NO_REDIRECTS).map(|recognised| recognised.kind)
}

async fn error_of(client: Client, url: &str) -> Error {
    client.get(url).send().await.expect_err("an error")
}

struct NoDns<F>(F);

impl<F: Fn() -> Resolving + Send + Sync> Resolve for NoDns<F> {
    fn resolve(&self, _: Name) -> Resolving {
        (self.0)()
    }
}

fn no_dns(resolve: fn() -> Resolving) -> ClientBuilder {
    builder().dns_resolver(Arc::new(NoDns(resolve)))
}

#[tokio::test]
async fn a_connection_that_was_never_established_proves_that_nothing_was_processed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let closed = listener.local_addr().expect("an address");
    drop(listener);
    let error = error_of(client(), &format!("http://{closed}/")).await;
    assert_eq!(seen(&error), Some(REFUSED), "{error:?}");

    let unknown = no_dns(|| Box::pin(ready(Err(io::Error::other("no such host").into()))));
    let error = error_of(unknown.build().expect("a client"), "http://search/").await;
    assert!(error.is_dns());
    assert_eq!(seen(&error), Some(REFUSED), "{error:?}");

    let slow = no_dns(|| Box::pin(pending::<Result<Addrs, BoxError>>())).connect_timeout(SHORT);
    let error = error_of(slow.build().expect("a client"), "http://search/").await;
    let late = Kind::Transient(Cause::Timeout, Processed::No);
    assert_eq!(seen(&error), Some(late), "{error:?}");
}

#[tokio::test]
async fn a_time_out_of_the_whole_attempt_proves_nothing() {
    let url = silent().await;
    let total = builder().timeout(SHORT).build().expect("a client");
    let error = error_of(total, &url).await;
    assert_eq!(seen(&error), Some(LATE), "{error:?}");

    let read = builder().read_timeout(SHORT).build().expect("a client");
    let error = error_of(read, &url).await;
    assert_eq!(seen(&error), Some(LATE), "{error:?}");

    let slow = no_dns(|| Box::pin(pending::<Result<Addrs, BoxError>>())).timeout(SHORT);
    let error = error_of(slow.build().expect("a client"), "http://search/").await;
    assert_eq!(seen(&error), Some(LATE), "{error:?}");
}

#[tokio::test]
async fn a_connection_that_broke_proves_nothing() {
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-le"] {
        let error = error_of(client(), &server(answer).await).await;
        assert_eq!(seen(&error), Some(BROKEN), "{error:?}");
    }
}

#[tokio::test]
async fn a_response_body_that_broke_off_proves_nothing() {
    let url = server("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello").await;
    let response = client().get(&url).send().await.expect("a response");
    let error = response.bytes().await.expect_err("half a body");
    assert_eq!(seen(&error), Some(BROKEN), "{error:?}");
}

#[tokio::test]
async fn what_another_attempt_would_not_mend_is_permanent() {
    let not_http = error_of(client(), &server("+OK ready\r\n\r\n").await).await;
    let in_circles = "HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n";
    let in_circles = error_of(client(), &server(in_circles).await).await;
    assert!(in_circles.is_redirect());
    let not_json = server("HTTP/1.1 404 Not Found\r\ncontent-length: 1\r\n\r\n?").await;
    let response = client().get(&not_json).send().await.expect("a response");
    let status = response.error_for_status_ref().expect_err("a 404");
    let not_json = response.json::<u8>().await.expect_err("no number");
    assert!(not_json.is_decode());
    let no_scheme = client().get("search").build().expect_err("relative");
    assert!(no_scheme.is_builder());
    let odd_scheme = error_of(client(), "ftp://search/").await;
    for error in [
        not_http, in_circles, status, not_json, no_scheme, odd_scheme,
    ] {
        assert_eq!(seen(&error), Some(Kind::Permanent), "{error:?}");
    }
}

#[tokio::test]
async fn what_the_callers_body_failed_with_says_nothing_of_the_server() {
    let url = silent().await;
    let other_server = error_of(builder().timeout(SHORT).build().expect("a client"), &url).await;
    let errors: [BoxError; 4] = [
        "the source is gone".into(),
        io::Error::from(io::ErrorKind::ConnectionRefused).into(),
        io::Error::from(io::ErrorKind::TimedOut).into(),
        other_server.into(),
    ];
    for error in errors {
        let (sender, body) = Channel::<Bytes, BoxError>::new(1);
        sender.abort(error);
        let body = reqwest::Body::wrap(body);
        let error = client().put(&url).body(body).send().await;
        let error = error.expect_err("no body");
        assert_eq!(seen(&error), Some(Kind::Permanent), "{error:?}");
    }
}

fn sent<B>(body: B) -> reqwest::Body
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let request = Request::put("http://store/").body(body).expect("a request");
    let mut request = into_reqwest_request(request).expect("an absolute URI");
    request.body_mut().take().expect("a body")
}

/// The body of an attempt that may be followed by another one.
fn replayed<B>(body: B) -> (ReplayBody<B>, Replay<B>)
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    Replay::new(body, 64 * 1024, &ReplayMemory::new(1 << 20), None)
}

#[test]
fn hands_bytes_on_as_bytes() {
    let large = Bytes::from(vec![7; 100 * 1024]);
    for bytes in [Bytes::new(), Bytes::from_static(b"small"), large] {
        let full = Full::new(bytes.clone());
        let known = [
            sent(reqwest::Body::from(bytes.clone())),
            sent(full.clone()),
            sent(replayed(reqwest::Body::from(bytes.clone())).0),
            sent(replayed(full.clone()).0),
            sent(ReplayBody::direct(full)),
        ];
        for body in known {
            assert_eq!(body.as_bytes(), Some(&bytes[..]));
        }
    }
    assert_eq!(sent(Empty::new()).as_bytes(), Some(&[][..]));
}

#[test]
fn hands_a_body_of_known_length_on_as_bytes_when_it_is_short_and_one_piece() {
    // Neither of the two types is known by name, nor is either `Sync`.
    let short = || Full::new(Bytes::from_static(b"short")).boxed_unsync();
    assert_eq!(sent(short()).as_bytes(), Some(&b"short"[..]));
    assert_eq!(sent(replayed(short()).0).as_bytes(), Some(&b"short"[..]));

    let long = Full::new(Bytes::from(vec![7; 100 * 1024])).boxed_unsync();
    let body = sent(replayed(long).0);
    assert_eq!(body.as_bytes(), None);
    assert_eq!(body.size_hint().exact(), Some(100 * 1024));
}

#[tokio::test]
async fn hands_everything_else_on_as_a_stream() {
    let (mut sender, body) = Channel::<Bytes, BoxError>::new(2);
    let body = sent(replayed(body).0);
    assert_eq!(body.as_bytes(), None);
    assert_eq!(body.size_hint().exact(), None);
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-checksum", http::HeaderValue::from_static("900150"));
    sender.send_data("abc".into()).await.expect("a reader");
    sender
        .send_trailers(trailers.clone())
        .await
        .expect("a reader");
    drop(sender);
    let body = body.collect().await.expect("a whole body");
    assert_eq!(body.trailers(), Some(&trailers));
    assert_eq!(body.to_bytes(), "abc");
}

#[test]
fn keeps_the_extensions_of_a_request_its_own_time_out_among_them() {
    let mut request = reqwest::Request::new(http::Method::GET, "http://a/".parse().expect("a URL"));
    *request.timeout_mut() = Some(SHORT);
    let request = Request::<reqwest::Body>::try_from(request).expect("a request");
    let request = into_reqwest_request(request.map(ReplayBody::direct)).expect("a request");
    assert_eq!(request.timeout(), Some(&SHORT));
}

#[test]
fn refuses_a_uri_that_is_not_absolute() {
    for uri in ["/find", "search:8080", "*"] {
        let request = Request::get(uri).body(Empty::new()).expect("a valid URI");
        match into_reqwest_request(request) {
            Err(error) => assert!(error.is_builder(), "{error:?}"),
            // A host with a port reads as a scheme, which reqwest refuses when it is to be sent.
            Ok(request) => assert_eq!(request.url().scheme(), "search"),
        }
    }
}
