//! The same over real connections: clients with and without the layer, a server with and without it.
//!
//! Wall-clock times over loopback are noisy. So there is a second bare client among the first ones, to
//! show how much of a difference is noise; and the instructions of a client's process, counted by
//! valgrind, are the figure that counts.

use crate::measure::{nanos, quantile};
use axum::{Router, routing::get};
use bytes::Bytes;
use http::Request;
use http_body::Body;
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_retry::{RetryTransientMiddleware, policies::ExponentialBackoff};
use std::{fmt::Debug, net::SocketAddr, process::Command, thread};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    time::Instant,
};
use tower::{Layer, Service, ServiceExt};
use tower_retry_budget::{
    RetryBudget, RetryBudgetLayer,
    body::ReplayBody,
    reqwest::{ClientExt, RequestBuilderExt, ReqwestService},
};

/// The first argument of the processes whose instructions are counted.
pub const CHILD: &str = "loopback";

const ROUNDS: usize = 40;
const CALLS: u32 = 200;

type Legacy<B> = Client<HttpConnector, B>;

/// Those that are compared.
#[derive(Clone)]
enum Caller {
    Hyper(Legacy<Full<Bytes>>),
    HyperOurs(RetryBudget<Legacy<ReplayBody<Full<Bytes>>>>),
    Reqwest(reqwest::Client),
    ReqwestOurs(reqwest::Client, RetryBudget<ReqwestService>),
    ReqwestRetry(ClientWithMiddleware),
}

const HYPER: &str = "hyper-util";
const HYPER_OURS: &str = "hyper-util, ours";
const REQWEST: &str = "reqwest";
const REQWEST_OURS: &str = "reqwest, ours";
const REQWEST_RETRY: &str = "reqwest-retry";

impl Caller {
    fn new(name: &str) -> Self {
        match name {
            HYPER => Self::Hyper(legacy()),
            HYPER_OURS => Self::HyperOurs(RetryBudgetLayer::new().layer(legacy())),
            REQWEST => Self::Reqwest(reqwest_client()),
            REQWEST_OURS => {
                let client = reqwest_client();
                let service = RetryBudgetLayer::new().layer(client.clone().into_service());
                Self::ReqwestOurs(client, service)
            }
            _ => {
                let policy = ExponentialBackoff::builder().build_with_max_retries(2);
                let retry = RetryTransientMiddleware::new_with_policy(policy);
                Self::ReqwestRetry(ClientBuilder::new(reqwest_client()).with(retry).build())
            }
        }
    }

    /// Sends a request, and reads its answer to the end.
    async fn send(&mut self, uri: &str) {
        match self {
            Self::Hyper(client) => send(client, uri).await,
            Self::HyperOurs(client) => send(client, uri).await,
            Self::Reqwest(client) => read(client.get(uri).send().await).await,
            Self::ReqwestOurs(client, service) => {
                read(client.get(uri).send_with(&*service).await).await;
            }
            Self::ReqwestRetry(client) => read(client.get(uri).send().await).await,
        }
    }
}

fn legacy<B: Body<Data: Send> + Send>() -> Legacy<B> {
    Client::builder(TokioExecutor::new()).build_http()
}

fn reqwest_client() -> reqwest::Client {
    let client = reqwest::Client::builder().retry(reqwest::retry::never());
    client.build().expect("a client")
}

async fn send<S, R>(service: &mut S, uri: &str)
where
    S: Service<Request<Full<Bytes>>, Response = http::Response<R>, Error: Debug>,
    R: Body<Error: Debug>,
{
    let request = Request::get(uri).body(Full::default());
    let service = service.ready().await.expect("ready");
    let response = service.call(request.expect("a valid request")).await;
    let body = response.expect("an answer").into_body().collect().await;
    body.expect("a body");
}

async fn read<E: Debug>(response: Result<reqwest::Response, E>) {
    let body = response.expect("an answer").bytes().await;
    body.expect("a body");
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// Starts a server on a thread of its own.
fn serve(app: Router) -> SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        runtime().block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            tell.send(address).expect("somebody waits");
            axum::serve(listener, app).await
        })
    });
    told.recv().expect("a server")
}

fn app() -> Router {
    Router::new().route("/", get(async || "found"))
}

/// Prints what requests over loopback take.
pub fn peers() {
    let bare = uri(serve(app()));
    let names = [
        HYPER,
        HYPER,
        HYPER_OURS,
        REQWEST,
        REQWEST,
        REQWEST_OURS,
        REQWEST_RETRY,
    ];
    let clients = names.map(|name| (name, Caller::new(name), bare.clone()));
    compare("loopback, clients", clients.into());
    let layered = uri(serve(app().layer(RetryBudgetLayer::for_handlers())));
    let servers = [
        ("bare", bare.clone()),
        ("bare", bare),
        ("for_handlers", layered),
    ];
    let servers = servers.map(|(name, uri)| (name, Caller::new(HYPER), uri));
    compare("loopback, servers", servers.into());
}

fn uri(address: SocketAddr) -> String {
    format!("http://{address}/")
}

fn compare(title: &str, mut callers: Vec<(&str, Caller, String)>) {
    let runtime = runtime();
    let mut times = vec![Vec::new(); callers.len()];
    for round in 0..=ROUNDS {
        for ((_, caller, uri), times) in callers.iter_mut().zip(&mut times) {
            let took = runtime.block_on(async {
                let start = Instant::now();
                for _ in 0..CALLS {
                    caller.send(uri).await;
                }
                start.elapsed()
            });
            // The first round opens the connections.
            if round > 0 {
                times.push(nanos(took) / 1000.0 / f64::from(CALLS));
            }
        }
    }
    println!("\n{title:24} {:>8} {:>17}", "µs each", "middle half");
    for ((name, _, _), times) in callers.iter().zip(times) {
        let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| quantile(&times, share));
        let spread = format!("{low:.1} to {high:.1}");
        println!("  {name:22} {middle:8.1} {spread:>17}");
    }
}

/// Prints the instructions of a request in the process of its client, and returns the ratio.
pub fn instructions() -> Option<(&'static str, f64)> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("\ninstructions of a request: not counted without valgrind");
        return None;
    }
    let address = serve(app()).to_string();
    println!("\ninstructions of a request, in the process of its client");
    let names = [
        HYPER,
        HYPER,
        HYPER_OURS,
        REQWEST,
        REQWEST_OURS,
        REQWEST_RETRY,
    ];
    let counted = names.map(|name| {
        let each = per_call(name, &address);
        println!("  {name:22} {each:8.0}");
        each
    });
    let [bare, again, ours, ..] = counted;
    Some(("loopback_instructions", ours / ((bare + again) / 2.0)))
}

/// What more calls are more, so that the start of the process does not count.
fn per_call(client: &str, address: &str) -> f64 {
    const FEW: u32 = 200;
    const MANY: u32 = 2200;
    let (few, many) = (
        collected(client, address, FEW),
        collected(client, address, MANY),
    );
    (many - few) / f64::from(MANY - FEW)
}

/// The instructions of a process that makes so many calls.
fn collected(client: &str, address: &str, calls: u32) -> f64 {
    let program = std::env::current_exe().expect("a program");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([CHILD, client, address, &calls.to_string()])
        .output();
    let output = output.expect("valgrind runs");
    let log = String::from_utf8_lossy(&output.stderr);
    let count = log.lines().find_map(|line| line.split_once("Collected : "));
    let count = count.and_then(|(_, count)| count.trim().parse().ok());
    count.unwrap_or_else(|| panic!("no count: {log}"))
}

/// Makes calls, in a process of its own.
pub fn run(client: &str, address: &str, calls: u32) {
    let mut caller = Caller::new(client);
    let uri = format!("http://{address}/");
    runtime().block_on(async {
        for _ in 0..calls {
            caller.send(&uri).await;
        }
    });
}
