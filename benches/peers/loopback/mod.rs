//! The same over real connections: clients with and without the layer, a server with and without it.
//!
//! Wall-clock times over loopback are noisy. So there is a second bare client among the first ones, and
//! a second bare server, to show how much of a difference is noise; and the instructions of a process,
//! counted by valgrind, are the figure that counts.

mod caller;
mod instructions;
mod rounds;

pub use self::instructions::{count, run_client, run_server};

use self::caller::{HYPER, HYPER_OURS, REQWEST, REQWEST_OURS, REQWEST_RETRY};
use axum::{Router, routing::get};
use std::net::SocketAddr;
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
};
use tower_retry_budget::RetryBudgetLayer;

/// The first arguments of the processes whose instructions are counted.
pub const CLIENT: &str = "loopback-client";
pub const SERVER: &str = "loopback-server";

const BARE: &str = "axum";
const HANDLERS: &str = "axum, for_handlers";

/// Those that are compared as clients: two bare ones before each of those with a layer.
const CLIENTS: [&str; 7] = [
    HYPER,
    HYPER,
    HYPER_OURS,
    REQWEST,
    REQWEST,
    REQWEST_OURS,
    REQWEST_RETRY,
];

/// Those that are compared as servers.
const SERVERS: [&str; 3] = [BARE, BARE, HANDLERS];

/// Prints what requests over loopback take.
pub fn peers() {
    for in_flight in [1, 16] {
        let clients = CLIENTS.map(|client| rounds::Case::new(client, client, BARE));
        let servers = SERVERS.map(|server| rounds::Case::new(server, HYPER, server));
        rounds::compare("loopback, clients", clients.into(), in_flight);
        rounds::compare("loopback, servers", servers.into(), in_flight);
    }
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

fn app(server: &str) -> Router {
    let bare = Router::new().route("/", get(async || "found"));
    match server {
        HANDLERS => bare.layer(RetryBudgetLayer::for_handlers()),
        _ => bare,
    }
}

/// Takes a port for a server.
async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}
