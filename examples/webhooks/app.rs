//! The dispatcher, as it runs.

use crate::{
    api::{self, Api},
    breakable::Breakable,
    deliver::Dispatcher,
    settings::{Args, Settings},
    store::{Failure, Store},
};
use std::{collections::BTreeMap, net::SocketAddr, path::Path, sync::Arc};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinHandle,
};

pub(crate) struct App {
    pub(crate) address: SocketAddr,
    pub(crate) api: Api,
    stop: watch::Sender<bool>,
    delivering: JoinHandle<()>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl App {
    /// Starts it at this address, with its events in this file. Whatever was under way when an earlier
    /// process ended goes on.
    pub(crate) async fn start(
        args: &Args,
        address: SocketAddr,
        database: &Path,
    ) -> Result<Self, Failure> {
        let mut endpoints = args.endpoints.clone();
        let mut breakable = BTreeMap::new();
        if endpoints.is_empty() {
            for name in ["orders", "stock"] {
                let (own, url) = Breakable::start(&args.secret).await?;
                endpoints.push((name.into(), url));
                breakable.insert(name.into(), own);
            }
        }
        let settings = Settings::new(args, endpoints);
        let dispatcher = Arc::new(Dispatcher::new(Store::open(database)?, &settings)?);
        let (stop, stopped) = watch::channel(false);
        let api = Api {
            dispatcher: Arc::clone(&dispatcher),
            breakable,
        };
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let mut closing = stopped.clone();
        let serving = axum::serve(listener, api::router(api.clone()))
            .with_graceful_shutdown(async move { _ = closing.wait_for(|stop| *stop).await });
        Ok(Self {
            address,
            api,
            stop,
            delivering: tokio::spawn(dispatcher.run(stopped)),
            serving: tokio::spawn(serving.into_future()),
        })
    }

    /// Runs until SIGTERM or SIGINT, then takes nothing on any more and lets deliveries end.
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = terminate.recv() => {}
            interrupted = tokio::signal::ctrl_c() => interrupted?,
        }
        self.stop().await
    }

    pub(crate) async fn stop(self) -> Result<(), Failure> {
        self.stop.send_replace(true);
        self.serving.await??;
        self.delivering.await?;
        Ok(())
    }
}
