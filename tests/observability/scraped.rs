//! A real Prometheus scrapes the example while its dependency breaks.

use super::{
    app::{App, Health},
    prometheus::Prometheus,
};
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// The expression of each alert, as the file has it.
fn alerts() -> Vec<(String, String)> {
    let file = include_str!("../../examples/observability/alerts.yml");
    let rules = file.split("- alert: ").skip(1);
    let alerts = rules.map(|rule| {
        let name = rule.lines().next().expect("a name");
        let (_, rest) = rule.split_once("expr: |").expect("an expression");
        let (expression, _) = rest.split_once("for: ").expect("a time");
        (name.to_owned(), expression.to_owned())
    });
    alerts.collect()
}

/// The query of each target of each panel, with what Grafana fills in.
fn queries() -> Vec<(String, String)> {
    let file = include_str!("../../examples/observability/dashboard.json");
    let dashboard: Value = serde_json::from_str(file).expect("valid JSON");
    assert!(dashboard["schemaVersion"].is_u64() && dashboard["uid"].is_string());
    let panels = dashboard["panels"].as_array().expect("panels");
    let panels = panels.iter().filter(|panel| panel["type"] != "row");
    let mut queries = Vec::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        let place = &panel["gridPos"];
        assert!(
            place["w"].as_u64() <= Some(24) && place["h"].is_u64(),
            "{title}"
        );
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            let query = target["expr"].as_str().expect("an expression");
            let query = query.replace("$__rate_interval", "1m");
            let query = query.replace("$job", ".*").replace("$dependency", ".*");
            assert!(!query.contains('$'), "{title}: {query}");
            queries.push((title.to_owned(), query));
        }
    }
    queries
}

/// The example has no hold-off, no gate that is only observed, and no configuration as data.
fn is_written(query: &str) -> bool {
    let unused = ["hold_off_active", "shadow_total", "config_info"];
    !unused.iter().any(|name| query.contains(name))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_and_dashboard_have_data_once_the_dependency_is_broken() {
    let app = App::start(([127, 0, 0, 1], 0).into())
        .await
        .expect("it starts");
    let app = Arc::new(app);
    let prometheus = Prometheus::start(app.address);
    let traffic = tokio::spawn({
        let app = Arc::clone(&app);
        async move { app.traffic().await }
    });

    prometheus.until("rate(tower_retry_calls_total[1m])").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    for (alert, expression) in alerts() {
        let values = prometheus.query(&expression).await;
        assert!(
            values.is_empty(),
            "{alert} before anything broke: {values:?}"
        );
    }

    app.set_health(Health::Broken);
    for (alert, expression) in alerts() {
        let values = prometheus.until(&expression).await;
        println!("{alert}: {values:?}");
    }
    let firing =
        r#"ALERTS{alertname="DependencyDegraded",alertstate="pending",dependency="search"}"#;
    prometheus.until(firing).await;
    for (panel, query) in queries() {
        if is_written(&query) {
            let values = prometheus.until(&query).await;
            println!("{panel}: {values:?}");
        } else {
            prometheus.query(&query).await;
        }
    }
    // The other dependency is well, and is seen to be.
    let prices = r#"sum(rate(tower_retry_exhausted_total{dependency="prices"}[1m]))"#;
    assert!(prometheus.query(prices).await.is_empty());
    traffic.abort();
}
