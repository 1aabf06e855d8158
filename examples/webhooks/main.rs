//! A dispatcher of webhooks: it accepts events over HTTP, keeps them, and delivers each to its endpoint
//! for as long as the window of its class lasts, through restarts, outages and rate limits.
//!
//! ```text
//! cargo run --all-features --example webhooks                  shows itself for some seconds
//! cargo run --all-features --example webhooks -- --serve       with a page at http://127.0.0.1:8080/
//! cargo run --all-features --example webhooks -- --help
//! ```
//!
//! What it takes from the crate:
//!
//! - a policy for each class of events, from its window (`settings.rs`);
//! - one budget account for each endpoint, so that one that is down costs the others nothing
//!   (`deliver.rs`);
//! - `RetryState` and `Persist`: that an attempt begins is kept before it is sent, so a SIGKILL neither
//!   loses an event nor gives it its attempts anew, and a delivery whose answer was lost is repeated
//!   under the same id;
//! - `defer_waits_over`: a long `Retry-After` goes back into the store and holds no task;
//! - a signature on each attempt, by a layer inside of the retries (`sign.rs`);
//! - `DeliveryRecord`, which says why a letter is dead (`store.rs`).
//!
//! A screenshot of the page, while it serves:
//!
//! ```text
//! chromium --headless --no-sandbox --window-size=1100,900 --virtual-time-budget=3000 \
//!     --screenshot=webhooks.png http://127.0.0.1:8080/
//! ```

mod api;
mod app;
mod breakable;
mod clock;
mod deliver;
mod demo;
mod settings;
mod sign;
mod store;

use clap::Parser;
use settings::Args;
use store::Failure;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let folder = std::env::temp_dir().join(format!("webhooks-{}", std::process::id()));
    let database = match &args.database {
        Some(file) => file.clone(),
        None => {
            std::fs::create_dir_all(&folder)?;
            folder.join("events.sqlite")
        }
    };
    match args.serve {
        Some(address) => {
            tracing_subscriber::fmt().init();
            let app = app::App::start(&args, address, &database).await?;
            println!(
                "listening on http://{}/, events in {}",
                app.address,
                database.display()
            );
            app.run().await
        }
        None => {
            let shown = demo::show(&args, &database).await;
            _ = std::fs::remove_dir_all(&folder);
            shown
        }
    }
}
