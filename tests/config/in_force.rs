//! What a configuration says is what calls go by.

use super::toml;
use crate::support::{
    Body, MS, SECOND, ample, exhausted, get, info,
    ledger::Ledger,
    recorder::Recorder,
    request,
    script::{Reply, Script},
    send, steady, timed,
};
use http::Request;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tower::Layer;
use tower_retry_budget::{
    RetryBudgetLayer, RetryPolicy,
    budget::{Key, TokenBudget},
    config::RetryConfig,
    deadline::LayeredRetries,
    observe::{CallView, Observe},
    policy::{AdaptiveLimits, CircuitState},
    reason::StopReason,
};

const STEADY: &str = "backoff = { base = \"10ms\", factor = 1, jitter = \"none\" }";

fn to(uri: &str) -> Request<Body> {
    Request::get(uri)
        .body(Body::default())
        .expect("a valid request")
}

/// How many requests one call makes while all of them fail.
async fn sent(layer: &RetryBudgetLayer, uri: &str) -> usize {
    let script = Script::always(502);
    send(&layer.layer(script.clone()), to(uri))
        .await
        .expect("a response");
    script.count()
}

#[tokio::test(start_paused = true)]
async fn the_policy_is_that_of_the_file() {
    let text = format!("policy = \"a\"\n[policies.a]\nmax_attempts = 5\n{STEADY}");
    let layer = RetryBudgetLayer::from_config(&toml(&text)).budget(ample());
    let script = Script::always(502);
    let response = send(&layer.layer(script.clone()), get()).await.unwrap();
    assert_eq!(exhausted(&response).max_attempts(), 5);
    assert_eq!(
        script.offsets(),
        [Duration::ZERO, 10 * MS, 20 * MS, 30 * MS, 40 * MS]
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_file_does_not_say_is_the_layers() {
    let empty = RetryConfig::default();
    let layer = RetryBudgetLayer::new()
        .policy(steady().max_attempts(4).build().unwrap())
        .config(&empty);
    assert_eq!(sent(&layer, "http://a/").await, 4);
    assert_eq!(
        sent(&RetryBudgetLayer::from_config(&empty), "http://a/").await,
        3
    );
    let handlers = RetryBudgetLayer::for_handlers().config(&empty);
    assert_eq!(sent(&handlers, "http://a/").await, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_said_in_code_comes_first_where_it_is_more_precise_or_later() {
    let text = "policy = \"a\"\n[policies.a]\nmax_attempts = 2\n[routes.b]\npolicy = \"a\"";
    let layer = RetryBudgetLayer::from_config(&toml(text));
    let by_head = layer
        .clone()
        .policy_fn(|_| Some(steady().max_attempts(4).build().unwrap()));
    assert_eq!(sent(&by_head, "http://b/").await, 4);
    let later = layer
        .clone()
        .policy(steady().max_attempts(5).build().unwrap());
    assert_eq!(sent(&later, "http://a/").await, 5);
    assert_eq!(sent(&later, "http://b/").await, 2);
    let script = Script::always(502);
    let mut own = to("http://b/");
    own.extensions_mut().insert(RetryPolicy::never());
    send(&layer.layer(script.clone()), own).await.unwrap();
    assert_eq!(script.count(), 1);
}

const ROUTES: &str = r#"
    policy = "two"
    [policies.two]
    max_attempts = 2
    [policies.three]
    max_attempts = 3
    [policies.four]
    max_attempts = 4
    [budgets.none]
    cap = 0
    initial = 0
    trickle = "none"
    [routes."*.example.com"]
    policy = "three"
    [routes."*.eu.example.com"]
    policy = "four"
    [routes."one.eu.example.com"]
    budget = "none"
"#;

#[tokio::test(start_paused = true)]
async fn the_most_precise_route_counts_alone() {
    let layer = RetryBudgetLayer::from_config(&toml(ROUTES)).budget(ample());
    assert_eq!(sent(&layer, "http://other/").await, 2);
    assert_eq!(sent(&layer, "http://example.com/").await, 2);
    assert_eq!(sent(&layer, "http://a.example.com/").await, 3);
    assert_eq!(sent(&layer, "https://A.EU.Example.com:8443/x").await, 4);
    // It has no policy, so the layer's; and a budget that grants nothing.
    assert_eq!(sent(&layer, "http://one.eu.example.com/").await, 1);
    assert_eq!(sent(&layer, "/no-host").await, 2);
}

/// Notes which account each call is kept in, and what that holds at its end.
#[derive(Default)]
struct Accounts(Mutex<Vec<(String, Option<f64>)>>);

impl Observe for Accounts {
    fn stopped(&self, call: &CallView<'_>, _: &tower_retry_budget::Exhausted) {
        let balance = call.account().map(|account| account.balance());
        let mut calls = self.0.lock().expect("no test panics while it notes");
        calls.push((call.dependency.to_string(), balance));
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_has_a_budget_of_its_own_and_several_hosts_one_account() {
    let text = r#"
        [budgets.small]
        cap = 3
        trickle = "none"
        [routes."*.s3.amazonaws.com"]
        budget = "small"
        [aliases]
        "*.s3.amazonaws.com" = "s3"
    "#;
    let accounts = Arc::new(Accounts::default());
    let layer = RetryBudgetLayer::from_config(&toml(text)).observe(accounts.clone());
    let control = layer.control();
    for host in ["a", "b"] {
        sent(&layer, &format!("http://{host}.s3.amazonaws.com/")).await;
    }
    sent(&layer, "http://search/").await;
    let seen = std::mem::take(&mut *accounts.0.lock().unwrap());
    let own = |seen: &[(String, Option<f64>)]| -> Vec<_> {
        let whole = seen
            .iter()
            .map(|(key, left)| (key.clone(), left.map(f64::floor)));
        whole.collect()
    };
    let expected = [("s3", 1.0), ("s3", 0.0), ("http://search", 3.0)];
    assert_eq!(
        own(&seen),
        expected.map(|(key, left)| (key.to_owned(), Some(left)))
    );
    // A handle reaches the budgets of routes too.
    control.reset(&Key::from_static("s3")).unwrap();
    assert_eq!(sent(&layer, "http://c.s3.amazonaws.com/").await, 3);
}

#[tokio::test(start_paused = true)]
async fn layers_of_one_configuration_have_budgets_of_their_own() {
    let config = toml("budget = \"b\"\n[budgets.b]\ncap = 2\ntrickle = \"none\"");
    let (one, other) = (
        RetryBudgetLayer::from_config(&config),
        RetryBudgetLayer::from_config(&config),
    );
    let again = one.clone().config(&config);
    for layer in [&one, &other, &again] {
        assert_eq!(sent(layer, "http://a/").await, 3);
        assert_eq!(sent(layer, "http://a/").await, 1);
    }
    // And a clone has the same.
    assert_eq!(sent(&one.clone(), "http://a/").await, 1);
}

#[tokio::test(start_paused = true)]
async fn gates_headers_and_layering_are_those_of_the_file() {
    let text = r#"
        layered_retries = "within_deadline"
        [gates]
        budget = "off"
        [headers]
        attempt = "x-try"
        deadlines = ["grpc-timeout"]
    "#;
    let ledger = Ledger::new([]);
    let layer = RetryBudgetLayer::new()
        .shared_budget(ledger.clone())
        .layered_retries(LayeredRetries::Skip)
        .config(&toml(text));
    let script = Script::new([502]);
    let client = layer.layer(script.clone());
    let handler = tower::service_fn(move |_: Request<Body>| {
        let client = client.clone();
        async move { send(&client, request("PUT", "abc")).await }
    });
    let server = tower_retry_budget::DeadlineLayer::new().layer(handler);
    let mut inherited = get();
    let value = http::HeaderValue::from_static("1;max=3");
    inherited.headers_mut().insert("x-retry-attempt", value);
    send(&server, inherited).await.unwrap();
    assert_eq!(script.count(), 2);
    let seen = &script.seen()[1];
    assert_eq!(seen.header("x-try"), Some("2;max=3"));
    assert!(seen.header("grpc-timeout").is_some());
    assert_eq!(seen.header("x-retry-attempt"), None);
    assert!(ledger.withdrawals().is_empty());
}

#[tokio::test(start_paused = true)]
async fn handlers_read_the_headers_of_the_file() {
    let text = "[headers]\ndeadlines = [\"grpc-timeout\"]";
    let layer = RetryBudgetLayer::for_handlers().config(&toml(text));
    let mut late = get();
    let value = http::HeaderValue::from_static("0n");
    late.headers_mut().insert("grpc-timeout", value);
    let script = Script::always(200);
    let response = send(&layer.layer(script.clone()), late).await.unwrap();
    assert_eq!((response.status().as_u16(), script.count()), (503, 0));
}

#[tokio::test(start_paused = true)]
async fn a_preset_is_where_a_policy_starts() {
    let text = "policy = \"a\"\n[policies.a]\npreset = \"side_effect\"\nmax_attempts = 2";
    let recorder = Recorder::default();
    let layer = RetryBudgetLayer::from_config(&toml(text))
        .budget(TokenBudget::default())
        .observe(recorder.clone());
    let script = Script::always(502);
    let response = send(&layer.layer(script.clone()), get()).await.unwrap();
    assert!(
        info(&response).skipped.is_some(),
        "only what has a key is repeated"
    );
    let mut keyed = request("POST", "abc");
    let value = http::HeaderValue::from_static("\"k\"");
    keyed.headers_mut().insert("idempotency-key", value);
    let response = send(&layer.layer(script.clone()), keyed).await.unwrap();
    assert_eq!(exhausted(&response).attempts(), 2);
}

#[tokio::test(start_paused = true)]
async fn adaptive_limits_are_those_of_the_file_and_the_breaker_is_the_layers() {
    let text = format!(
        "policy = \"a\"\n[policies.a]\nmax_attempts = 5\n{STEADY}\n\
         [adaptive]\nerror_rates = [[0.5, 0.4]]\nmin_sample = 4\n"
    );
    let open = Arc::new(Mutex::new(false));
    let is_open = Arc::clone(&open);
    let own = AdaptiveLimits::builder().circuit(move |_| match *is_open.lock().unwrap() {
        true => CircuitState::Open { retry_after: None },
        false => CircuitState::Closed,
    });
    let layer = RetryBudgetLayer::new()
        .adaptive(own.build().unwrap())
        .config(&toml(&text))
        .budget(ample());
    // The fourth failure is enough to judge by, in the midst of a call; then two of five are left.
    assert_eq!(sent(&layer, "http://a/").await, 4);
    assert_eq!(sent(&layer, "http://a/").await, 2);
    // The same limits go on with what they know.
    let control = layer.control();
    control.reload(&toml(&format!("{text}\n[hold_off]\nlongest = \"5s\"\n")));
    assert_eq!(sent(&layer, "http://a/").await, 2);
    control.reload(&toml(&text.replace("0.5, 0.4", "0.5, 0.6")));
    assert_eq!(sent(&layer, "http://a/").await, 4);
    *open.lock().unwrap() = true;
    assert_eq!(sent(&layer, "http://a/").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hold_off_is_that_of_the_file() {
    let layer = RetryBudgetLayer::from_config(&toml(
        "[hold_off]\nlongest = \"5s\"\nfirst_attempts = true\n",
    ));
    let script = Script::new([Reply::retry_after(503, "60")]);
    let service = layer.layer(script.clone());
    let mut first = get();
    first.extensions_mut().insert(RetryPolicy::never());
    send(&service, first).await.unwrap();
    let (_, took) = timed(send(&service, get())).await;
    assert!((5 * SECOND..=6 * SECOND).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_is_deferred_as_the_file_says() {
    let text = "policy = \"a\"\n[policies.a]\ndefer_waits_over = \"2s\"\n";
    let layer = RetryBudgetLayer::from_config(&toml(text));
    let script = Script::new([Reply::retry_after(503, "10")]);
    let response = send(&layer.layer(script), get()).await.unwrap();
    assert_eq!(exhausted(&response).reason(), StopReason::Deferred);
}
