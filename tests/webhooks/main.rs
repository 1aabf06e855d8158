//! The dispatcher of `examples/webhooks`, as a process of its own that is killed.

#[path = "../../examples/webhooks/api.rs"]
mod api;
#[allow(dead_code, reason = "the example looks at more of it")]
#[path = "../../examples/webhooks/app.rs"]
mod app;
#[allow(dead_code, reason = "the example looks at more of it")]
#[path = "../../examples/webhooks/breakable.rs"]
mod breakable;
#[path = "../../examples/webhooks/clock.rs"]
mod clock;
#[path = "../../examples/webhooks/deliver.rs"]
mod deliver;
#[path = "../../examples/webhooks/settings.rs"]
mod settings;
#[path = "../../examples/webhooks/sign.rs"]
mod sign;
#[path = "../../examples/webhooks/store.rs"]
mod store;

mod endpoint;
mod killed;
mod page;
mod process;
mod side_by_side;

use tokio::sync::{Mutex, MutexGuard};

/// One at a time: they measure, and have two cores.
static ALONE: Mutex<()> = Mutex::const_new(());

async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}
