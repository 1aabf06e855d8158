//! Shows the dispatcher at work for some seconds: one endpoint is broken in every way, the other is well.

use crate::{
    api::Status,
    app::App,
    breakable::Behaviour,
    settings::Args,
    store::{Delivery, Failure, Replay},
};
use std::{path::Path, time::Duration};
use tokio::time::sleep;
use tower_retry_budget::RetryState;

const STEPS: [(Behaviour, &str, u64); 5] = [
    (Behaviour::Well, "both endpoints are well", 1),
    (Behaviour::Fails, "orders answers 500", 3),
    (Behaviour::Throttles, "orders asks for 3 s", 3),
    (Behaviour::Well, "orders is well again", 5),
    (Behaviour::Gone, "orders is gone for good", 1),
];

pub(crate) async fn show(args: &Args, database: &Path) -> Result<(), Failure> {
    let app = App::start(args, "127.0.0.1:0".parse()?, database).await?;
    let Some(orders) = app.api.breakable.get("orders").cloned() else {
        return Err("without --serve there are no endpoints but the example's own".into());
    };
    println!(
        "a page at http://{}/ shows this meanwhile; --serve keeps it\n",
        app.address
    );
    println!("{:24} {:>38} {:>28}", "", "orders", "stock");
    println!(
        "{:24} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9} {:>8}",
        "", "waiting", "delivered", "dead", "balance", "waiting", "delivered", "balance"
    );
    let mut number = 0;
    for (behaviour, what, seconds) in STEPS {
        orders.set(behaviour);
        for _ in 0..seconds {
            for _ in 0..20 {
                number += 1;
                accept(&app, number).await?;
            }
            sleep(Duration::from_secs(1)).await;
            line(what, &app.api.status().await?);
        }
    }
    orders.set(Behaviour::Well);
    let dead = app.api.dispatcher.store.dead(1000).await?.len();
    let replayed = Replay::Endpoint("orders".into());
    let replayed = app.api.dispatcher.store.replay(replayed).await?;
    sleep(Duration::from_secs(1)).await;
    let status = app.api.status().await?;
    line(&format!("{replayed} of {dead} replayed"), &status);

    let (attempts, forged) = orders.came();
    println!(
        "\n{attempts} attempts came to orders, of which {forged} had a signature that was not good"
    );
    let lost: u64 = number
        - status
            .endpoints
            .iter()
            .map(|endpoint| &endpoint.counts)
            .map(|counts| u64::from(counts.waiting + counts.delivered + counts.dead))
            .sum::<u64>();
    println!("{number} events were accepted, {lost} are lost");
    app.stop().await?;
    match lost {
        0 => Ok(()),
        lost => Err(format!("{lost} events are lost").into()),
    }
}

async fn accept(app: &App, number: u64) -> Result<(), Failure> {
    let endpoint = if number % 2 == 0 { "orders" } else { "stock" };
    let delivery = Delivery {
        id: format!("evt_{number}"),
        endpoint: endpoint.into(),
        class: "notice".into(),
        body: format!(r#"{{"number":{number}}}"#),
        state: RetryState::new(),
    };
    app.api.dispatcher.store.accept(delivery).await?;
    app.api.dispatcher.look();
    Ok(())
}

fn line(what: &str, status: &Status) {
    if let [orders, stock] = &status.endpoints[..] {
        println!(
            "{what:24} {:>9} {:>9} {:>9} {:>8.1} {:>9} {:>9} {:>8.1}",
            orders.counts.waiting,
            orders.counts.delivered,
            orders.counts.dead,
            orders.balance,
            stock.counts.waiting,
            stock.counts.delivered,
            stock.balance,
        );
    }
}
