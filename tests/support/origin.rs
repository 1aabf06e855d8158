//! A real server over loopback that answers by a [`Script`].

use super::{SECOND, script::Script};
use hyper::{rt, server::conn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use std::net::SocketAddr;
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Http1,
    Http2,
}

pub const BOTH: [Version; 2] = [Version::Http1, Version::Http2];

/// The server. It stops when it is dropped, and after some seconds in any case.
pub struct Origin {
    address: SocketAddr,
    script: Script,
    task: JoinHandle<()>,
}

impl Origin {
    pub async fn serve(version: Version, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let answers = script.clone();
        let task = tokio::spawn(async move {
            let accept = accept(version, &listener, &answers);
            _ = tokio::time::timeout(10 * SECOND, accept).await;
        });
        Self {
            address,
            script,
            task,
        }
    }

    pub fn uri(&self) -> String {
        format!("http://{}/find?q=1", self.address)
    }

    pub fn script(&self) -> &Script {
        &self.script
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(version: Version, listener: &TcpListener, script: &Script) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(version, stream, script.clone()));
    }
}

/// Whatever goes wrong on a connection is the client's to see.
async fn serve(version: Version, stream: TcpStream, script: Script) {
    _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(script);
    match version {
        Version::Http1 => _ = http1(TokioIo::new(stream), service).await,
        Version::Http2 => {
            let server = conn::http2::Builder::new(TokioExecutor::new());
            _ = server.serve_connection(TokioIo::new(stream), service).await;
        }
    }
}

async fn http1<T>(stream: T, service: TowerToHyperService<Script>) -> hyper::Result<()>
where
    T: rt::Read + rt::Write + Unpin,
{
    let server = conn::http1::Builder::new();
    server.serve_connection(stream, service).await
}
