//! However many dependencies and operations there are, the labels are few.

use super::scrape::{Scrape, recorded};
use crate::support::{Body, ample, call, script::Script, send, steady};
use http::Request;
use std::{collections::BTreeSet, convert::Infallible};
use tower::Layer;
use tower_retry_budget::{
    RetryBudgetLayer, RetryPolicy, body::ReplayBody, observe::metrics::Metrics,
};

fn layer(metrics: &Metrics) -> RetryBudgetLayer {
    RetryBudgetLayer::new()
        .policy(steady().build().expect("a valid policy"))
        .budget(ample())
        .observe(metrics.clone())
}

fn to(host: u32) -> Request<Body> {
    let request = Request::get(format!("http://h{host}/users/{host}"));
    request.body(Body::default()).expect("a valid request")
}

/// The different values of a label.
fn values(scrape: &Scrape, label: &str) -> BTreeSet<String> {
    let start = format!("{label}=\"");
    let series = scrape.values.keys();
    let values = series.filter_map(|series| series.split_once(&start));
    values
        .filter_map(|(_, rest)| rest.split_once('"'))
        .map(|(value, _)| value.to_owned())
        .collect()
}

#[test]
fn many_dependencies_make_at_most_101_labels() {
    let metrics = Metrics::new();
    let layer = layer(&metrics);
    recorded(&metrics, |scraper| async move {
        let inner = tower::service_fn(|_: Request<ReplayBody<Body>>| {
            std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::default())))
        });
        let mut service = layer.policy(RetryPolicy::never()).layer(inner);
        for host in 0..10_000 {
            call(&mut service, to(host)).await.expect("a response");
        }
        let scrape = scraper.scrape();
        let dependencies = values(&scrape, "dependency");
        assert_eq!(dependencies.len(), 101);
        assert!(dependencies.contains("other") && dependencies.contains("http://h99"));
        let other = r#"tower_retry_calls_total{dependency="other",outcome="success"}"#;
        assert_eq!(scrape.values[other], 9_900.0);
    });
}

#[test]
fn names_dependencies_as_the_user_does() {
    let name = |key: &tower_retry_budget::budget::Key| {
        let key = key.to_string();
        let number: u32 = key.strip_prefix("http://h")?.parse().ok()?;
        (number != 7).then(|| format!("shard-{}", number % 3).into())
    };
    let metrics = Metrics::builder().dependency_fn(name).build();
    let layer = layer(&metrics);
    recorded(&metrics, |scraper| async move {
        let service = layer.layer(Script::always(200));
        for host in 0..10 {
            send(&service, to(host)).await.expect("a response");
        }
        let dependencies = values(&scraper.scrape(), "dependency");
        let expected = ["http://h7", "shard-0", "shard-1", "shard-2"];
        assert_eq!(dependencies, expected.map(String::from).into());
    });
}

#[test]
fn bounds_operations_as_it_does_dependencies() {
    let metrics = Metrics::builder().max_dependencies(10).build();
    let layer = layer(&metrics).operation_fn(|head| Some(head.uri.path().to_owned().into()));
    recorded(&metrics, |scraper| async move {
        let service = layer.layer(Script::always(200));
        for host in 0..1000 {
            send(&service, to(host)).await.expect("a response");
        }
        let scrape = scraper.scrape();
        assert_eq!(values(&scrape, "operation").len(), 11);
        assert_eq!(values(&scrape, "dependency").len(), 11);
        assert!(scrape.count("calls_total") <= 101);
    });
}

#[test]
fn has_no_operation_unless_it_is_named() {
    let metrics = Metrics::new();
    let layer = layer(&metrics);
    recorded(&metrics, |scraper| async move {
        let service = layer.layer(Script::always(200));
        send(&service, to(1)).await.expect("a response");
        assert!(values(&scraper.scrape(), "operation").is_empty());
    });
}

#[test]
fn begins_every_name_as_it_is_told() {
    let metrics = Metrics::builder().prefix("shop_").build();
    let layer = layer(&metrics);
    recorded(&metrics, |scraper| async move {
        let service = layer.layer(Script::new([502]));
        send(&service, to(1)).await.expect("a response");
        let scrape = scraper.scrape();
        assert!(!scrape.values.is_empty());
        assert!(scrape.values.keys().all(|name| name.starts_with("shop_")));
    });
}
