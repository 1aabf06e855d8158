//! The server that everybody calls.

use axum::{Router, http::StatusCode};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::net::TcpListener;

/// One in so many requests fails even when all is well: a budget is there for these.
const FAILS_ONE_IN: u64 = 50;

pub(crate) struct Dependency {
    address: SocketAddr,
    is_down: Arc<AtomicBool>,
}

impl Dependency {
    pub(crate) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let is_down = Arc::new(AtomicBool::new(false));
        let (down, requests) = (Arc::clone(&is_down), Arc::new(AtomicU64::new(0)));
        let app = Router::new().fallback(async move || {
            let request = requests.fetch_add(1, Ordering::Relaxed);
            if down.load(Ordering::SeqCst) || request % FAILS_ONE_IN == FAILS_ONE_IN - 1 {
                StatusCode::INTERNAL_SERVER_ERROR
            } else {
                StatusCode::OK
            }
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { address, is_down })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn go_down(&self) {
        self.is_down.store(true, Ordering::SeqCst);
    }

    pub(crate) fn come_up(&self) {
        self.is_down.store(false, Ordering::SeqCst);
    }
}
