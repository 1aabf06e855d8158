//! It is known which configuration is in force.

use super::toml;
use crate::support::{get, log::Log, recorder::Recorder, script::Script, send};
use tower::Layer;
use tower_retry_budget::{RetryBudgetLayer, config::RetryConfig};

const TEXT: &str = "[budgets.a]\nratio = 0.1";

fn told(recorder: &Recorder) -> Vec<String> {
    let told = recorder.take().into_iter();
    told.filter(|line| line.starts_with("configuration"))
        .collect()
}

fn line(config: &RetryConfig) -> String {
    format!("configuration_changed {}", config.hash())
}

#[tokio::test(start_paused = true)]
async fn it_is_logged_once_and_observers_are_told_once() {
    let config = toml(TEXT);
    let log = Log::listen();
    let recorder = Recorder::default();
    let layer = RetryBudgetLayer::from_config(&config).observe(recorder.clone());
    let (one, other) = (
        layer.layer(Script::always(200)),
        layer.clone().layer(Script::always(200)),
    );
    for service in [&one, &other, &one.clone()] {
        send(service, get()).await.unwrap();
    }
    let logged = log.events("configuration in force");
    assert_eq!(logged.len(), 1);
    assert_eq!(logged[0]["hash"], config.hash());
    assert_eq!(logged[0]["configuration"], config.effective());
    assert_eq!(told(&recorder), [line(&config)]);
}

#[tokio::test(start_paused = true)]
async fn a_reload_is_logged_and_told_at_once() {
    let config = toml(TEXT);
    let recorder = Recorder::default();
    let layer = RetryBudgetLayer::new().observe(recorder.clone());
    let control = layer.control();
    let log = Log::listen();
    control.reload(&config);
    assert_eq!(log.events("configuration in force").len(), 1);
    assert_eq!(told(&recorder), [line(&config)]);
    send(&layer.layer(Script::always(200)), get())
        .await
        .unwrap();
    assert!(told(&recorder).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reload_of_the_same_is_neither_logged_nor_told() {
    let config = toml(TEXT);
    let recorder = Recorder::default();
    let layer = RetryBudgetLayer::from_config(&config).observe(recorder.clone());
    let service = layer.layer(Script::always(200));
    send(&service, get()).await.unwrap();
    recorder.take();
    let log = Log::listen();
    layer
        .control()
        .reload(&toml("[budgets.a]\nratio = 0.1\ncap = 10"));
    send(&service, get()).await.unwrap();
    assert!(log.events("configuration in force").is_empty());
    assert!(told(&recorder).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_layer_without_one_tells_of_none() {
    let log = Log::listen();
    let recorder = Recorder::default();
    let layer = RetryBudgetLayer::new().observe(recorder.clone());
    send(&layer.layer(Script::always(200)), get())
        .await
        .unwrap();
    assert!(log.events("configuration in force").is_empty());
    assert!(told(&recorder).is_empty());
}
