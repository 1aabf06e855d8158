//! The wire contract in `tests/vectors/`, vector by vector, against the crate.
//!
//! Unknown fields and files that are not read are failures: the files are what other teams build from.

mod support;

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::Full;
use serde::{Deserialize, de::DeserializeOwned};
use std::{collections::BTreeSet, convert::Infallible, fs, path::PathBuf, time::Duration};
use support::{
    Body, MS, ample,
    script::{Reply, Script},
    send, steady,
};
use tower::{Layer, service_fn};
use tower_retry_budget::{
    DeadlineLayer, RetryBudgetLayer,
    deadline::{
        DEADLINE_REMAINING_MS, DeadlineHeader, Inherited, LayeredRetries, RETRY_ATTEMPT,
        RETRY_EXHAUSTED, RetryAttempt, RetryHeaders,
    },
    reason::StopReason,
};

/// What every file says in words.
macro_rules! file {
    ($(#[$doc:meta])* struct $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            header: String,
            on: On,
            grammar: String,
            set_by: String,
            read_by: String,
            absent: String,
            malformed: String,
            $($field: $type,)*
        }

        impl $name {
            fn read(header: &str, on: On) -> Self {
                let file: Self = read(header);
                assert_eq!(file.header, header);
                assert_eq!(file.on, on);
                for words in [
                    &file.grammar,
                    &file.set_by,
                    &file.read_by,
                    &file.absent,
                    &file.malformed,
                ] {
                    assert!(words.ends_with('.'), "{header}: a whole sentence, not {words:?}");
                }
                $(assert!(!file.$field.is_empty(), "{header}: no {}", stringify!($field));)*
                file
            }
        }
    };
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum On {
    Request,
    Response,
}

/// The value of a header.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Value {
    Text(String),
    Repeated(Repeated),
    Bytes(Bytes),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Repeated {
    repeat: String,
    times: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bytes {
    hex: String,
}

impl Value {
    fn header(&self) -> HeaderValue {
        let bytes = match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Repeated(Repeated { repeat, times }) => repeat.repeat(*times).into_bytes(),
            Self::Bytes(Bytes { hex }) => (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits"))
                .collect(),
        };
        HeaderValue::from_bytes(&bytes).expect("a valid value")
    }
}

/// A time: a decimal string of nanoseconds.
#[derive(Debug, Deserialize)]
struct Nanos(String);

impl Nanos {
    fn duration(&self) -> Duration {
        let nanos: u128 = self.0.parse().expect("decimal digits");
        let seconds = u64::try_from(nanos / 1_000_000_000).expect("a duration");
        let nanos = u32::try_from(nanos % 1_000_000_000).expect("less than a second");
        Duration::new(seconds, nanos)
    }
}

fn directory() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "vectors"]
        .iter()
        .collect()
}

fn read<T: DeserializeOwned>(header: &str) -> T {
    let path = directory().join(format!("{header}.json"));
    let text = fs::read_to_string(&path).expect("a file for each header");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_file_is_read() {
    let entries = fs::read_dir(directory()).expect("the vectors");
    let files: BTreeSet<_> = entries
        .map(|entry| entry.expect("a file").file_name().into_string())
        .map(|name| name.expect("a readable name"))
        .collect();
    let known = [
        "README.md",
        "grpc-timeout.json",
        "x-deadline-remaining-ms.json",
        "x-envoy-expected-rq-timeout-ms.json",
        "x-retry-attempt.json",
        "x-retry-exhausted.json",
    ];
    assert_eq!(files, known.map(String::from).into());
}

file! {
    /// A header that carries the time left.
    struct DeadlineFile {
        parse: Vec<ParseDeadline>,
        write: Vec<WriteDeadline>,
        receive: Vec<Receive>,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParseDeadline {
    value: Value,
    read: ReadDeadline,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReadDeadline {
    Malformed,
    LeftNs(Nanos),
    AtLeastNs(Nanos),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteDeadline {
    left_ns: Nanos,
    value: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Receive {
    headers: Vec<(String, String)>,
    then: Then,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Then {
    NoDeadline,
    AnsweredAtOnce,
    HandlerHasMs(f64),
}

fn deadlines() -> [DeadlineHeader; 3] {
    [
        DeadlineHeader::default(),
        DeadlineHeader::grpc_timeout(),
        DeadlineHeader::envoy(),
    ]
}

fn deadline_files() -> [(DeadlineHeader, DeadlineFile); 3] {
    deadlines().map(|header| {
        let file = DeadlineFile::read(header.name().as_str(), On::Request);
        (header, file)
    })
}

#[test]
fn the_time_left_is_read_as_the_vectors_say() {
    for (header, file) in deadline_files() {
        for vector in file.parse {
            let parsed = header.parse(&vector.value.header());
            let name = header.name();
            match &vector.read {
                ReadDeadline::Malformed => assert_eq!(parsed, None, "{name}: {vector:?}"),
                ReadDeadline::LeftNs(left) => {
                    assert_eq!(parsed, Some(left.duration()), "{name}: {vector:?}");
                }
                ReadDeadline::AtLeastNs(least) => {
                    let long = parsed.is_some_and(|left| left >= least.duration());
                    assert!(long, "{name}: {vector:?}");
                }
            }
        }
    }
}

#[test]
fn the_time_left_is_written_as_the_vectors_say() {
    for (header, file) in deadline_files() {
        for vector in file.write {
            let left = vector.left_ns.duration();
            let written = header.write(left);
            let expected = vector.value.as_deref();
            let name = header.name();
            let text = written.as_ref().map(|value| value.to_str().expect("text"));
            assert_eq!(text, expected, "{name}: {vector:?}");
            if let Some(written) = written {
                let read = header.parse(&written).expect("what was written");
                assert!(read <= left, "{name}: {vector:?} grew");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_holds_its_handler_to_the_time_left() {
    for (header, file) in deadline_files() {
        for vector in file.receive {
            let then = receive(&vector.headers).await;
            let name = header.name();
            match (&then, &vector.then) {
                (Then::HandlerHasMs(found), Then::HandlerHasMs(expected)) => {
                    // Shares of a time are rounded to whole nanoseconds.
                    assert!(
                        (found - expected).abs() < 1e-3,
                        "{name}: {then:?}, {vector:?}"
                    );
                }
                (found, expected) => assert_eq!(found, expected, "{name}: {vector:?}"),
            }
        }
    }
}

/// Sends a request with these headers to a server that reads all that carry a time.
async fn receive(headers: &[(String, String)]) -> Then {
    let server = DeadlineLayer::new()
        .headers(RetryHeaders::default().deadlines(deadlines()))
        .layer(service_fn(|request: Request<Body>| async move {
            let inherited: Inherited = *request.extensions().get().expect("inherited");
            let left = inherited.deadline().map(|deadline| deadline.remaining());
            let mut response = Response::new(Body::default());
            let then = left.map_or(Then::NoDeadline, |left| {
                Then::HandlerHasMs(left.as_secs_f64() * 1000.0)
            });
            response.extensions_mut().insert(then);
            Ok::<_, Infallible>(response)
        }));
    let lines: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let Ok(response) = send(&server, inbound(&lines)).await;
    let then = response.extensions().get().copied();
    then.unwrap_or_else(|| {
        assert_eq!(response.status(), 503);
        Then::AnsweredAtOnce
    })
}

file! {
    struct AttemptFile {
        parse: Vec<ParseAttempt>,
        layered: Vec<Layered>,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParseAttempt {
    value: Value,
    read: ReadAttempt,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ReadAttempt {
    Malformed(Malformed),
    Attempt(Attempt),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Malformed {
    Malformed,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attempt {
    number: u32,
    max: Option<u32>,
    written: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Layered {
    mode: Mode,
    method: String,
    max_attempts: u32,
    inherited: Vec<String>,
    passed_on: Vec<Option<String>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Skip,
    SkipRetried,
    WithinDeadline,
}

impl From<Mode> for LayeredRetries {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Skip => Self::Skip,
            Mode::SkipRetried => Self::SkipRetried,
            Mode::WithinDeadline => Self::WithinDeadline,
        }
    }
}

#[test]
fn the_number_of_an_attempt_is_read_as_the_vectors_say() {
    for vector in AttemptFile::read(RETRY_ATTEMPT.as_str(), On::Request).parse {
        let parsed = RetryAttempt::parse(&vector.value.header());
        match &vector.read {
            ReadAttempt::Malformed(Malformed::Malformed) => {
                assert_eq!(parsed, None, "{vector:?}");
            }
            ReadAttempt::Attempt(expected) => {
                let parsed = parsed.unwrap_or_else(|| panic!("malformed: {vector:?}"));
                assert_eq!(parsed.number(), expected.number, "{vector:?}");
                assert_eq!(parsed.max(), expected.max, "{vector:?}");
                assert_eq!(parsed.write(), expected.written.as_str(), "{vector:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_layer_retries_and_the_others_pass_its_number_on() {
    for vector in AttemptFile::read(RETRY_ATTEMPT.as_str(), On::Request).layered {
        let leaf = Script::always(500);
        let policy = steady().max_attempts(vector.max_attempts);
        let client = RetryBudgetLayer::new()
            .policy(policy.build().expect("a valid policy"))
            .budget(ample())
            .layered_retries(vector.mode.into())
            .layer(leaf.clone());
        let method = vector.method.clone();
        let server = DeadlineLayer::new().layer(service_fn(move |_: Request<Body>| {
            let (client, request) = (client.clone(), support::request(&method, ""));
            async move { send(&client, request).await }
        }));
        let lines = vector
            .inherited
            .iter()
            .map(|line| ("x-retry-attempt", line.as_str()));
        let request = inbound(&lines.collect::<Vec<_>>());
        send(&server, request).await.expect("a response");
        let seen = leaf.seen();
        let seen: Vec<_> = seen
            .iter()
            .map(|seen| seen.header("x-retry-attempt"))
            .collect();
        let passed_on: Vec<_> = vector.passed_on.iter().map(Option::as_deref).collect();
        assert_eq!(seen, passed_on, "{vector:?}");
    }
}

file! {
    struct ExhaustedFile {
        reasons: Vec<Reason>,
        read: Vec<ReadExhausted>,
        set: Vec<Set>,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    reason: String,
    layer_above_retries: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadExhausted {
    status: u16,
    lines: Vec<String>,
    layer_above_retries: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    when: When,
    inherited: Vec<String>,
    status: u16,
    value: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum When {
    CallGivenUp,
    CallLeftToTheCaller,
    GivenUpBelow,
    SetByTheHandler,
    OverBeforeAnyWork,
    CutOff,
}

#[tokio::test(start_paused = true)]
async fn a_reason_says_whether_the_layer_above_retries() {
    let file = ExhaustedFile::read(RETRY_EXHAUSTED.as_str(), On::Response);
    let named: BTreeSet<_> = file.reasons.iter().map(|of| of.reason.as_str()).collect();
    let all: BTreeSet<_> = StopReason::ALL
        .iter()
        .map(|reason| reason.as_str())
        .collect();
    assert_eq!(named, all);
    for vector in file.reasons {
        let reason = StopReason::from_name(&vector.reason).expect("a reason");
        let forbids = reason.forbids_retry_above();
        assert_eq!(!forbids, vector.layer_above_retries, "{vector:?}");
        let retries = is_retried(502, &[format!("reason={reason}")]).await;
        assert_eq!(retries, vector.layer_above_retries, "{vector:?}");
    }
    for vector in file.read {
        let retries = is_retried(vector.status, &vector.lines).await;
        assert_eq!(retries, vector.layer_above_retries, "{vector:?}");
    }
}

/// Whether a layer with attempts and budget left asks again after such a response.
async fn is_retried(status: u16, exhausted: &[String]) -> bool {
    let leaf = Script::new([answer(status, exhausted)]);
    let response = send(
        &client(LayeredRetries::Skip).layer(leaf.clone()),
        support::get(),
    )
    .await;
    let response = response.expect("a response");
    let retried = leaf.count() == 2;
    // Handed on as it came, if it was not retried.
    assert_eq!(response.status(), if retried { 200 } else { status });
    retried
}

#[tokio::test(start_paused = true)]
async fn a_server_tells_a_caller_that_retries_what_was_given_up() {
    for vector in ExhaustedFile::read(RETRY_EXHAUSTED.as_str(), On::Response).set {
        let leaf = match vector.when {
            When::CallGivenUp | When::CallLeftToTheCaller => Script::always(500),
            When::GivenUpBelow => {
                let below = "reason=budget, attempts=1, elapsed-ms=7";
                Script::new([answer(502, &[below.to_owned()])])
            }
            _ => Script::new([Reply::Hang]),
        };
        let client = client(LayeredRetries::Skip).layer(leaf.clone());
        let status = vector.status;
        let server = DeadlineLayer::new().layer(service_fn(move |_: Request<Body>| {
            let client = client.clone();
            async move {
                let response = Response::builder().status(status);
                let response = match vector.when {
                    When::CutOff => std::future::pending().await,
                    When::SetByTheHandler => response.header(RETRY_EXHAUSTED, "reason=overloaded"),
                    _ => {
                        send(&client, support::get()).await.expect("a response");
                        response
                    }
                };
                Ok::<_, Infallible>(response.body(Body::default()).expect("a valid response"))
            }
        }));
        let lines = vector
            .inherited
            .iter()
            .map(|line| ("x-retry-attempt", line.as_str()));
        let mut request = inbound(&lines.collect::<Vec<_>>());
        let left = match vector.when {
            When::OverBeforeAnyWork => Some(0),
            When::CutOff => Some(2000),
            _ => None,
        };
        if let Some(left) = left {
            let headers: &mut HeaderMap = request.headers_mut();
            headers.insert(DEADLINE_REMAINING_MS, left.into());
        }
        let Ok(response) = send(&server, request).await;
        assert_eq!(response.status(), vector.status, "{vector:?}");
        let told = response.headers().get(RETRY_EXHAUSTED);
        let told = told.map(|told| told.to_str().expect("text"));
        assert_eq!(told, vector.value.as_deref(), "{vector:?}");
        let sent = match vector.when {
            When::CallGivenUp => 3,
            When::CallLeftToTheCaller | When::GivenUpBelow => 1,
            _ => 0,
        };
        assert_eq!(leaf.count(), sent, "{vector:?}");
    }
}

fn client(layered: LayeredRetries) -> RetryBudgetLayer {
    let policy = steady().throttled_backoff(tower_retry_budget::policy::Backoff::fixed(10 * MS));
    RetryBudgetLayer::new()
        .policy(policy.build().expect("a valid policy"))
        .budget(ample())
        .layered_retries(layered)
}

fn answer(status: u16, exhausted: &[String]) -> Reply {
    let mut response = Response::builder().status(status);
    for line in exhausted {
        response = response.header(RETRY_EXHAUSTED, line);
    }
    Reply::Response(response.body(Full::default()).expect("a valid response"))
}

fn inbound(headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = support::get();
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().expect("a name");
        let value = value.parse().expect("a value");
        request.headers_mut().append(name, value);
    }
    request
}
