//! Headers that no honest caller sends, from a raw socket: they concern the one request that has them.

mod support;

use axum::{Router, http::StatusCode};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use support::{
    Body, MS, SECOND,
    client::{Http, bounded, http1, quick, request},
    log::Log,
    origin::{Origin, Version},
    script::{Reply, Script},
    send,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tower::Layer;
use tower_retry_budget::{
    Deadline, DeadlineLayer, RetryBudget, RetryBudgetLayer,
    budget::{Key, Snapshot, TokenBudget},
    deadline::{DeadlineHeader, RetryHeaders},
};

type Client = RetryBudget<Http<Body>>;

/// A server whose handler calls an origin, and waits as long as it takes.
struct Server {
    address: SocketAddr,
    origin: Origin,
    budget: Arc<TokenBudget>,
    task: JoinHandle<()>,
}

/// What is around the handler.
#[derive(Clone, Copy, Debug)]
enum Around {
    Deadline,
    Handlers,
}

const BOTH: [Around; 2] = [Around::Deadline, Around::Handlers];

impl Server {
    async fn new(around: Around, script: Script) -> Self {
        Self::with(around, DeadlineLayer::new(), script).await
    }

    async fn with(around: Around, deadline: DeadlineLayer, script: Script) -> Self {
        support::log::install();
        let origin = Origin::serve(Version::Http1, script).await;
        let budget = TokenBudget::builder().no_trickle().build();
        let budget = Arc::new(budget.expect("a valid budget"));
        let policy = quick().total_timeout(2 * SECOND).build();
        let layer = RetryBudgetLayer::new()
            .policy(policy.expect("a valid policy"))
            .shared_budget(budget.clone());
        let client: Client = layer.layer(http1());
        let uri = origin.uri();
        let handler = move || async move {
            let answer = send(&client, request("GET", &uri, Body::default())).await;
            match answer.expect("a response").status() {
                StatusCode::OK => StatusCode::OK,
                _ => StatusCode::BAD_GATEWAY,
            }
        };
        let app = Router::new().fallback(handler);
        let app = match around {
            Around::Deadline => app.layer(deadline),
            Around::Handlers => app.layer(RetryBudgetLayer::for_handlers().inbound(deadline)),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("a server");
        });
        Self {
            address,
            origin,
            budget,
            task,
        }
    }

    /// Sends a request with these header lines, and returns the answer as it was written.
    async fn ask(&self, lines: &[u8]) -> String {
        let asking = async {
            let mut stream = TcpStream::connect(self.address).await?;
            stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n").await?;
            stream.write_all(lines).await?;
            stream.write_all(b"connection: close\r\n\r\n").await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let answer = bounded(asking).await.expect("an answer");
        String::from_utf8(answer).expect("text")
    }

    async fn status(&self, lines: impl AsRef<[u8]>) -> u16 {
        let answer = self.ask(lines.as_ref()).await;
        let status = answer.split(' ').nth(1).expect("a status line");
        status.parse().expect("a status")
    }

    /// The account of the origin.
    fn account(&self) -> Snapshot {
        let key = Key::from_uri(&self.origin.uri().parse().expect("a URI"));
        let now = tokio::time::Instant::now().into_std();
        self.budget.snapshot(&key, now)
    }

    /// The time that the origin was told of last.
    fn told(&self) -> Duration {
        let seen = self.origin.script().seen();
        let left = seen.last().and_then(|seen| {
            let left = seen.header("x-deadline-remaining-ms")?;
            left.parse().ok()
        });
        Duration::from_millis(left.expect("a deadline"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn line(name: &str, value: &[u8]) -> Vec<u8> {
    [name.as_bytes(), b": ", value, b"\r\n"].concat()
}

/// Values that are no time, and those that are so long that they say nothing.
fn nonsense() -> Vec<Vec<u8>> {
    let words: [&[u8]; 14] = [
        b"-1",
        b"+1",
        b"1e3",
        b"1.5",
        b"0x10",
        b"12abc",
        b"1 2",
        b"1,2",
        b"",
        b"\"5\"",
        b"5;q=1",
        b"soon",
        b"\xff\xfe",
        b"5\xe4",
    ];
    let long = [
        b"9".repeat(10_000),
        b"1;max=".repeat(1_000),
        b"31536000000".to_vec(),
    ];
    words.into_iter().map(<[u8]>::to_vec).chain(long).collect()
}

#[tokio::test]
async fn what_is_no_time_is_as_good_as_absent() {
    for around in BOTH {
        let server = Server::new(around, Script::always(200)).await;
        for value in nonsense() {
            let status = server.status(line("x-deadline-remaining-ms", &value)).await;
            assert_eq!(status, 200, "{value:?}");
            // The server's own limit holds: nobody made it longer, and nobody shorter.
            let told = server.told();
            assert!(told <= 2 * SECOND, "{told:?} for {value:?}");
            assert!(told > SECOND, "{told:?} for {value:?}");
        }
    }
}

#[tokio::test]
async fn what_is_no_attempt_is_as_good_as_absent() {
    for around in BOTH {
        let server = Server::new(around, Script::new([500, 500, 200])).await;
        let values = nonsense().into_iter().filter(|value| value != b"5;q=1");
        for value in values.filter(|value| !value.starts_with(b"31536")) {
            for _ in 0..3 {
                server.origin.script().then(200);
            }
            let before = server.origin.script().count();
            let status = server.status(line("x-retry-attempt", &value)).await;
            assert_eq!(status, 200, "{value:?}");
            assert!(server.origin.script().count() > before);
            let seen = server.origin.script().seen();
            let attempt = seen[before].header("x-retry-attempt");
            assert_eq!(attempt, Some("1;max=3"), "{value:?}");
        }
        assert_eq!(server.account().ceiling(), 30.0);
    }
}

#[tokio::test]
async fn zero_ends_its_own_request_and_no_other() {
    for around in BOTH {
        let server = Server::new(around, Script::always(200)).await;
        assert_eq!(
            server.status(line("x-deadline-remaining-ms", b"0")).await,
            503
        );
        assert_eq!(server.origin.script().count(), 0);
        assert_eq!(server.status("").await, 200);
        let lines = b"x-deadline-remaining-ms: 5000\r\nx-deadline-remaining-ms: 0\r\n";
        assert_eq!(server.status(lines).await, 503);
        assert_eq!(server.origin.script().count(), 1);
    }
}

#[tokio::test]
async fn of_many_lines_the_shortest_counts() {
    for around in BOTH {
        let server = Server::new(around, Script::always(200)).await;
        let times = ["99999999999999999999", "-1", "700", "900", "x"];
        let lines: Vec<u8> = times
            .iter()
            .flat_map(|time| line("x-deadline-remaining-ms", time.as_bytes()))
            .collect();
        assert_eq!(server.status(&lines).await, 200);
        let told = server.told();
        assert!(told <= 665 * MS && told > 300 * MS, "{told:?}");
    }
}

#[tokio::test]
async fn a_forged_retry_neither_earns_nor_spends() {
    for around in BOTH {
        for (status, answered) in [(200, 200), (500, 502)] {
            let server = Server::new(around, Script::always(status)).await;
            let before = server.account();
            for forged in ["2;max=3", "9", "999999999999999;max=1", "4294967296;max=-1"] {
                let lines = [
                    line("x-retry-attempt", forged.as_bytes()),
                    line("x-retry-exhausted", b"reason=max_attempts, attempts=9"),
                ];
                assert_eq!(server.status(lines.concat()).await, answered);
            }
            assert_eq!(server.account(), before);
            assert_eq!(server.origin.script().count(), 4);
        }
    }
}

#[tokio::test]
async fn forged_headers_on_all_other_requests_change_nothing_for_an_honest_one() {
    for around in BOTH {
        let server = Server::new(around, Script::new([500; 8])).await;
        let before = server.account();
        for (time, attempt) in [
            ("0", "1;max=2"),
            ("1", "7;max=9"),
            ("99999", "2"),
            ("-1", "3"),
        ] {
            let lines = [
                line("x-deadline-remaining-ms", time.as_bytes()),
                line("x-retry-attempt", attempt.as_bytes()),
                line("x-retry-attempt", b"1;max=999999"),
                line("x-retry-exhausted", b"reason=budget"),
            ];
            let status = server.status(lines.concat()).await;
            assert!(status >= 500);
        }
        assert_eq!(server.origin.script().count(), 2, "two were over at once");
        assert_eq!(server.account(), before);
        // Retried as if nothing had been: attempts 3 to 5 of the script fail, then 6 to 8.
        assert_eq!(server.status("").await, 502);
        assert_eq!(server.origin.script().count(), 5);
        assert_eq!(server.account().balance(), before.balance() - 2.0);
        assert_eq!(server.status("").await, 502);
        assert_eq!(server.status("").await, 200);
        assert_eq!(server.origin.script().count(), 9);
    }
}

#[tokio::test]
async fn an_exhausted_header_on_a_request_is_handed_to_nobody() {
    for around in BOTH {
        let server = Server::new(around, Script::always(500)).await;
        let forged = line("x-retry-exhausted", b"reason=max_attempts");
        let answer = server.ask(&forged).await;
        assert!(!answer.contains("x-retry"), "{answer}");
        let seen = server.origin.script().seen();
        assert_eq!(seen.len(), 3);
        assert!(
            seen.iter()
                .all(|seen| seen.header("x-retry-exhausted").is_none())
        );
    }
}

#[tokio::test]
async fn a_forged_marker_from_an_upstream_ends_its_own_call_only() {
    let marked = || {
        let response = http::Response::builder().status(500);
        let response = response.header("x-retry-exhausted", "reason=budget");
        Reply::Response(response.body(Body::default()).expect("a valid response"))
    };
    for around in BOTH {
        let server = Server::new(around, Script::new([marked(), Reply::Status(500)])).await;
        assert_eq!(server.status("").await, 502);
        assert_eq!(server.origin.script().count(), 1);
        assert_eq!(server.status("").await, 200);
        assert_eq!(server.origin.script().count(), 3);
    }
}

#[tokio::test]
async fn nine_digits_are_too_many_for_grpc() {
    let codecs = || [DeadlineHeader::grpc_timeout(), DeadlineHeader::envoy()];
    let headers = RetryHeaders::default().deadlines(codecs());
    for around in BOTH {
        let layer = DeadlineLayer::new().headers(headers.clone());
        let server = Server::with(around, layer, Script::always(200)).await;
        for (value, most) in [
            ("100000000u", 2_000),
            ("000000001n", 2_000),
            ("1s", 2_000),
            ("99999999H", 2_000),
            ("800m", 760),
        ] {
            let status = server.status(line("grpc-timeout", value.as_bytes())).await;
            assert_eq!(status, 200, "{value}");
            let told = server.told();
            assert!(
                told <= most * MS && told > (most - 400) * MS,
                "{told:?}, {value}"
            );
        }
        assert_eq!(server.status(line("grpc-timeout", b"00000001n")).await, 503);
    }
}

/// What a handler under this layer sees of a time that it is told.
async fn seen(layer: DeadlineLayer, value: &str) -> Option<Duration> {
    let service = layer.layer(tower::service_fn(|_: http::Request<Body>| async {
        let mut response = http::Response::new(Body::default());
        response.extensions_mut().insert(Deadline::current());
        Ok::<_, std::convert::Infallible>(response)
    }));
    let mut get = support::get();
    let value = value.parse().expect("a value");
    get.headers_mut().insert("x-deadline-remaining-ms", value);
    let response = send(&service, get).await.expect("a response");
    let deadline: &Option<Deadline> = response.extensions().get().expect("it was called");
    deadline.map(|deadline| deadline.remaining())
}

#[tokio::test(start_paused = true)]
async fn a_time_is_clamped_to_ten_minutes_or_to_what_is_set() {
    let most = 600 * SECOND - 50 * MS;
    for value in ["600000", "600001", "31536000000", &"9".repeat(10_000)] {
        assert_eq!(seen(DeadlineLayer::new(), value).await, Some(most));
        let layer = DeadlineLayer::new().longest(3 * SECOND);
        assert_eq!(seen(layer, value).await, Some(2_950 * MS));
        // Too far away to be an instant.
        let endless = DeadlineLayer::new().longest(Duration::MAX);
        assert!(seen(endless, value).await.is_none_or(|left| left >= most));
    }
    let short = seen(DeadlineLayer::new(), "599999").await;
    assert_eq!(short, Some(most - MS));
}

#[tokio::test(start_paused = true)]
async fn a_time_never_lengthens_what_the_server_set_itself() {
    for value in ["5000", "31536000000"] {
        for own in ["policy", "request"] {
            let script = Script::new([Reply::Hang]);
            let mut layer = RetryBudgetLayer::for_handlers();
            let mut get = support::get();
            if own == "policy" {
                let policy = quick().total_timeout(SECOND).build();
                layer = layer.policy(policy.expect("a valid policy"));
            } else {
                get.extensions_mut().insert(Deadline::after(SECOND));
            }
            let value = value.parse().expect("a value");
            get.headers_mut().insert("x-deadline-remaining-ms", value);
            let (response, took) = support::timed(send(&layer.layer(script), get)).await;
            assert_eq!(response.expect("a response").status(), 503);
            assert_eq!(took, SECOND, "{own}");
        }
    }
}

#[tokio::test]
async fn a_time_that_cannot_be_read_is_logged_once_a_call() {
    for around in BOTH {
        let server = Server::new(around, Script::always(200)).await;
        let log = Log::listen();
        let bad = line("x-deadline-remaining-ms", b"-1");
        server.status(bad.repeat(20)).await;
        let message = "malformed deadline header: as if it were absent";
        assert_eq!(log.events(message).len(), 1);
        server.status(&bad).await;
        assert_eq!(log.events(message).len(), 2);
        server.status("").await;
        server.status(line("x-deadline-remaining-ms", b"900")).await;
        assert_eq!(log.events(message).len(), 2);
        assert!(!log.everything().contains("-1"), "no value is written");
    }
}
