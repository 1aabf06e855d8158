//! Instructions of a request in the process of its client, and in that of its server.

use super::{
    BARE, CLIENT, CLIENTS, SERVER, SERVERS, app,
    caller::{Caller, HYPER},
    listen, runtime,
};
use std::{
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
};

/// What more requests are more, so that the start of a process does not count.
const FEW: usize = 200;
const MANY: usize = 2200;

/// Prints the instructions of a request, and returns what the layer makes of them.
pub fn count() -> Vec<(&'static str, f64)> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("\ninstructions of a request: not counted without valgrind");
        return Vec::new();
    }
    println!("\ninstructions of a request, in the process of its client");
    let mut server = Server::start(Command::new(program()), BARE);
    let clients = CLIENTS.map(|name| each(name, |calls| of_client(name, &server.address, calls)));
    server.stop();
    println!("\ninstructions of a request, in the process of its server");
    let servers = SERVERS.map(|name| each(name, |calls| of_server(name, calls)));
    let [bare, again, ours, ..] = clients;
    let [bare_server, again_server, handlers] = servers;
    vec![
        ("loopback_instructions", ours / ((bare + again) / 2.0)),
        (
            "loopback_server_instructions",
            handlers / ((bare_server + again_server) / 2.0),
        ),
    ]
}

/// Prints and returns the instructions of one request more.
fn each(name: &str, collected: impl Fn(usize) -> f64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a small number")]
    let each = (collected(MANY) - collected(FEW)) / (MANY - FEW) as f64;
    println!("  {name:22} {each:8.0}");
    each
}

/// The instructions of a client that makes so many requests.
fn of_client(name: &str, address: &str, calls: usize) -> f64 {
    let mut counted = valgrind();
    counted.args([CLIENT, name, address, &calls.to_string()]);
    collected(&counted.output().expect("valgrind runs").stderr)
}

/// The instructions of a server that answers so many requests.
fn of_server(name: &str, calls: usize) -> f64 {
    let mut server = Server::start(valgrind(), name);
    run_client(HYPER, &server.address, calls);
    collected(&server.stop())
}

fn program() -> PathBuf {
    std::env::current_exe().expect("a program")
}

/// This program, with its instructions counted.
fn valgrind() -> Command {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program());
    command
}

/// The count in what valgrind prints.
fn collected(log: &[u8]) -> f64 {
    let log = String::from_utf8_lossy(log);
    let count = log.lines().find_map(|line| line.split_once("Collected : "));
    let count = count.and_then(|(_, count)| count.trim().parse().ok());
    count.unwrap_or_else(|| panic!("no count: {log}"))
}

/// A server in a process of its own. It ends when its input does.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(mut command: Command, name: &str) -> Self {
        command.args([SERVER, name]).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("a process");
        let mut address = String::new();
        let output = process.stdout.take().expect("it prints");
        let read = BufReader::new(output).read_line(&mut address);
        read.expect("it prints its address");
        let address = address.trim().to_owned();
        Self { process, address }
    }

    /// Ends it, and returns what it wrote of errors.
    fn stop(&mut self) -> Vec<u8> {
        drop(self.process.stdin.take());
        let mut log = Vec::new();
        let mut errors = self.process.stderr.take().expect("it is stopped once");
        errors.read_to_end(&mut log).expect("it ends");
        self.process.wait().expect("it ends");
        log
    }
}

/// Makes requests, in a process of its own or in this one.
pub fn run_client(client: &str, address: &str, calls: usize) {
    let uri = format!("http://{address}/");
    runtime().block_on(async {
        let mut caller = Caller::new(client);
        for _ in 0..calls {
            caller.send(&uri).await;
        }
    });
}

/// Serves until the input ends, in a process of its own.
pub fn run_server(server: &str) {
    thread::spawn(|| {
        let mut input = std::io::stdin();
        // Its end and its failure are both the end.
        let _ = input.read_to_end(&mut Vec::new());
        std::process::exit(0)
    });
    runtime().block_on(async {
        let (listener, address) = listen().await;
        println!("{address}");
        axum::serve(listener, app(server)).await.expect("it serves");
    });
}
