//! A server of raw bytes on loopback, which counts what really arrives.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What the server does with one request.
#[derive(Clone, Copy)]
pub(crate) enum Act {
    Status(u16),
    /// Closes the connection without an answer.
    Close,
}

impl From<u16> for Act {
    fn from(status: u16) -> Self {
        Self::Status(status)
    }
}

/// The server. It stops when this is dropped.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    acts: Mutex<VecDeque<Act>>,
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
}

impl Wire {
    /// Answers with these, one after the other, and with 200 afterwards.
    pub(crate) async fn start<A: Into<Act>>(acts: impl IntoIterator<Item = A>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        *shared.acts.lock().expect("not poisoned") = acts.into_iter().map(Into::into).collect();
        let server = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, Arc::clone(&server)));
            }
        });
        Self {
            address,
            shared,
            accepting,
        }
    }

    /// What arrived, head and body of each request as they were on the wire.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().expect("not poisoned").clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.requests().len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) -> std::io::Result<()> {
    let mut received = Vec::new();
    loop {
        while end(&received).is_none() {
            if stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
        }
        let rest = received.split_off(end(&received).unwrap_or_default());
        let request = String::from_utf8_lossy(&received).into_owned();
        received = rest;
        shared.requests.lock().expect("not poisoned").push(request);
        let act = shared.acts.lock().expect("not poisoned").pop_front();
        let Act::Status(status) = act.unwrap_or(Act::Status(200)) else {
            return Ok(());
        };
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 4\r\n\r\nbody");
        stream.write_all(answer.as_bytes()).await?;
    }
}

/// Where the first request ends, once it is all there.
fn end(received: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(received).to_ascii_lowercase();
    let head = text.find("\r\n\r\n")? + 4;
    if text[..head].contains("transfer-encoding: chunked") {
        return text[head..].find("0\r\n\r\n").map(|at| head + at + 5);
    }
    let length = text[..head].split("content-length: ").nth(1);
    let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
    let end = head + length.unwrap_or(0_usize);
    (text.len() >= end).then_some(end)
}
