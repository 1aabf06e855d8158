//! What stands in the place of Redis, or in between.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    (listener, format!("redis://{address}"))
}

/// Takes connections and says nothing.
pub(crate) async fn black_hole() -> String {
    let (listener, url) = listen().await;
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            held.push(connection);
        }
    });
    url
}

/// Answers every command as a server does that reads its data.
pub(crate) async fn loading() -> String {
    const LOADING: &[u8] = b"-LOADING Redis is loading the dataset in memory\r\n";

    let (listener, url) = listen().await;
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(read @ 1..) = connection.read(&mut buffer).await {
                    for _ in 0..commands(&buffer[..read]) {
                        if connection.write_all(LOADING).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    url
}

/// How many commands begin in what was read: each is an array.
fn commands(read: &[u8]) -> usize {
    let first = usize::from(read.starts_with(b"*"));
    first + read.windows(3).filter(|at| *at == b"\r\n*").count()
}

/// Goes between, and loses replies when it is told to.
pub(crate) struct Proxy {
    url: String,
    lose: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) async fn start(port: u16) -> Self {
        let (listener, url) = listen().await;
        let lose = Arc::new(AtomicBool::new(false));
        let loses = lose.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await;
                tokio::spawn(between(client, server.expect("a server"), loses.clone()));
            }
        });
        Self { url, lose }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn lose_replies(&self, lose: bool) {
        self.lose.store(lose, Ordering::Relaxed);
    }
}

async fn between(client: TcpStream, server: TcpStream, lose: Arc<AtomicBool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
        if lose.load(Ordering::Relaxed) {
            continue;
        }
        if to_client.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
