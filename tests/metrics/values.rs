//! Each metric has the value that it says it has.

use super::scrape::recorded;
use crate::support::{
    MS, SECOND, get,
    ledger::{Answer, Ledger},
    request,
    script::{Reply, Script},
    send, steady,
};
use std::sync::Arc;
use tower::Layer;
use tower_retry_budget::{
    HoldOff, RetryBudgetLayer,
    budget::{Budget, StoreMode, TokenBudget},
    control::{Gate, Gates, Mode},
    observe::{Observe, metrics::Metrics},
    policy::RetryPolicyBuilder,
    reason::StopReason,
};

fn layer(
    metrics: &Metrics,
    policy: RetryPolicyBuilder,
    budget: Arc<dyn Budget>,
) -> RetryBudgetLayer {
    RetryBudgetLayer::new()
        .policy(policy.build().expect("a valid policy"))
        .shared_budget(budget)
        .observe(metrics.clone())
}

#[test]
fn counts_calls_attempts_and_retries() {
    let metrics = Metrics::new();
    let ledger = Ledger::new([]);
    let policy = steady().max_attempts(6).total_timeout(10 * SECOND);
    let layer = layer(&metrics, policy, ledger);
    recorded(&metrics, |scraper| async move {
        // A success at once, one at the sixth attempt, an answer, a failure that stands.
        let replies = [200, 502, 502, 502, 502, 502, 200, 404, 500];
        let service = layer.layer(Script::new(replies));
        for method in ["GET", "GET", "GET", "POST"] {
            let response = send(&service, request(method, "")).await;
            response.expect("a response");
        }
        let scrape = scraper.scrape();
        let calls = |outcome| scrape.get("calls_total", outcome);
        assert_eq!(calls(r#"outcome="success""#), Some(2.0));
        assert_eq!(calls(r#"outcome="final_answer""#), Some(1.0));
        assert_eq!(calls(r#"outcome="failed""#), Some(1.0));
        let attempts = |labels| scrape.get("attempts_total", labels);
        assert_eq!(attempts(r#"attempt="1",outcome="success""#), Some(1.0));
        assert_eq!(attempts(r#"attempt="1",outcome="failure""#), Some(2.0));
        assert_eq!(attempts(r#"attempt="1",outcome="final_answer""#), Some(1.0));
        assert_eq!(attempts(r#"attempt="4",outcome="failure""#), Some(1.0));
        assert_eq!(attempts(r#"attempt="5+",outcome="failure""#), Some(1.0));
        assert_eq!(attempts(r#"attempt="5+",outcome="success""#), Some(1.0));
        let retries = scrape.get("retries_total", r#"cause="server_error""#);
        assert_eq!(retries, Some(5.0));
        assert_eq!(scrape.get("budget_spent_total", ""), Some(5.0));
        assert_eq!(scrape.get("success_total", r#"attempt="1""#), Some(1.0));
        assert_eq!(scrape.get("success_total", r#"attempt="5+""#), Some(1.0));
        let skipped = |reason| scrape.get("skipped_total", reason);
        assert_eq!(skipped(r#"reason="final_answer""#), Some(1.0));
        assert_eq!(skipped(r#"reason="not_idempotent""#), Some(1.0));
        assert_eq!(scrape.get("attempts_per_call_sum", ""), Some(9.0));
        assert_eq!(scrape.get("wait_seconds_count", ""), Some(1.0));
        assert_eq!(scrape.get("wait_seconds_sum", ""), Some(0.05));
        assert_eq!(
            scrape.get("deadline_remaining_seconds_count", ""),
            Some(4.0)
        );
        let durations = r#"outcome="success""#;
        assert_eq!(
            scrape.get("call_duration_seconds_count", durations),
            Some(2.0)
        );
        assert_eq!(
            scrape.get("attempt_duration_seconds_count", durations),
            Some(2.0)
        );
    });
}

#[test]
fn counts_denials_apart_from_retries() {
    let metrics = Metrics::new();
    let denials = [
        Answer::Deny(StopReason::Budget),
        Answer::Deny(StopReason::Budget),
    ];
    let layer = layer(&metrics, steady(), Ledger::new(denials));
    recorded(&metrics, |scraper| async move {
        let service = layer.layer(Script::always(502));
        for _ in 0..2 {
            send(&service, get()).await.expect("a response");
        }
        let scrape = scraper.scrape();
        assert_eq!(scrape.get("budget_denied_total", ""), Some(2.0));
        assert_eq!(scrape.count("retries_total"), 0);
        assert_eq!(scrape.count("budget_spent_total"), 0);
        assert_eq!(
            scrape.get("exhausted_total", r#"reason="budget""#),
            Some(2.0)
        );
    });
}

#[test]
fn shows_what_waits_and_for_how_long() {
    let metrics = Metrics::new();
    let layer = layer(&metrics, steady(), Ledger::new([])).hold_off(HoldOff::new());
    recorded(&metrics, |scraper| async move {
        let replies = [Reply::retry_after(503, "20"), Reply::Status(502)];
        let service = layer.layer(Script::new(replies));
        let first = tokio::spawn({
            let service = service.clone();
            async move { send(&service, request("PUT", "abc")).await.map(drop) }
        });
        tokio::time::sleep(SECOND).await;
        let second = tokio::spawn(async move { send(&service, get()).await.map(drop) });
        tokio::time::sleep(SECOND).await;
        let scrape = scraper.scrape();
        assert_eq!(scrape.get("waiting", ""), Some(2.0));
        let oldest = scrape.get("oldest_wait_seconds", "").expect("there is one");
        assert!((2.0..2.1).contains(&oldest), "{oldest}");
        assert_eq!(scrape.get("hold_off_active", ""), Some(1.0));
        assert_eq!(scrape.values["tower_retry_replay_bytes"], 3.0);
        assert_eq!(scrape.get("retry_after_seconds_count", ""), Some(2.0));

        // One of them is dropped, the other ends.
        second.abort();
        _ = first.await.expect("no panic");
        let scrape = scraper.scrape();
        assert_eq!(scrape.get("waiting", ""), Some(0.0));
        assert_eq!(scrape.get("oldest_wait_seconds", ""), Some(0.0));
        assert_eq!(scrape.get("hold_off_active", ""), Some(0.0));
        assert_eq!(scrape.values["tower_retry_replay_bytes"], 0.0);
        assert_eq!(
            scrape.get("calls_total", r#"outcome="cancelled""#),
            Some(1.0)
        );
    });
}

#[test]
fn counts_an_attempt_that_was_cancelled() {
    let metrics = Metrics::new();
    let layer = layer(&metrics, steady(), Ledger::new([]));
    recorded(&metrics, |scraper| async move {
        let service = layer.layer(Script::new([Reply::Hang]));
        let call = tokio::time::timeout(MS, send(&service, get())).await;
        assert!(call.is_err());
        let scrape = scraper.scrape();
        let attempts = scrape.get("attempts_total", r#"attempt="1",outcome="cancelled""#);
        assert_eq!(attempts, Some(1.0));
        assert_eq!(
            scrape.get("calls_total", r#"outcome="cancelled""#),
            Some(1.0)
        );
    });
}

#[test]
fn shows_what_the_budget_holds() {
    let metrics = Metrics::new();
    let budget = TokenBudget::builder().no_trickle().build();
    let layer = layer(
        &metrics,
        steady(),
        Arc::new(budget.expect("valid settings")),
    );
    recorded(&metrics, |scraper| async move {
        let service = layer.layer(Script::always(502));
        send(&service, get()).await.expect("a response");
        let scrape = scraper.scrape();
        assert_eq!(scrape.get("budget_balance", ""), Some(3.0));
        assert_eq!(scrape.get("budget_cap", ""), Some(10.0));
    });
}

#[test]
fn sets_an_evicted_account_to_zero() {
    let metrics = Metrics::new();
    let budget = TokenBudget::builder().max_keys(1).build();
    let layer = layer(
        &metrics,
        steady(),
        Arc::new(budget.expect("valid settings")),
    );
    recorded(&metrics, |scraper| async move {
        let service = layer.layer(Script::always(200));
        send(&service, get()).await.expect("a response");
        let before = scraper.scrape().get("budget_balance", "");
        assert!(before.is_some_and(|balance| balance > 5.0));
        tokio::time::sleep(3600 * SECOND).await;
        let mut other = get();
        *other.uri_mut() = http::Uri::from_static("http://other:8080/");
        send(&service, other).await.expect("a response");
        let scrape = scraper.scrape();
        assert_eq!(scrape.get("budget_balance", ""), Some(0.0));
        assert_eq!(scrape.get("budget_cap", ""), Some(0.0));
    });
}

#[test]
fn writes_gauges_once_a_second_without_being_asked() {
    let metrics = Metrics::new();
    let layer = layer(&metrics, steady(), Arc::new(TokenBudget::default()));
    recorded(&metrics, |scraper| async move {
        let service = layer.layer(Script::always(200));
        send(&service, get()).await.expect("a response");
        assert_eq!(scraper.look().count("budget_balance"), 0);
        tokio::time::sleep(SECOND).await;
        send(&service, get()).await.expect("a response");
        assert_eq!(scraper.look().count("budget_balance"), 1);
    });
}

#[test]
fn writes_what_stores_and_settings_tell() {
    let metrics = Metrics::new();
    recorded(&metrics.clone(), |scraper| async move {
        metrics.store_mode_changed(StoreMode::LocalShare);
        metrics.store_failed("timeout");
        metrics.store_failed("timeout");
        metrics.configuration_changed("a");
        metrics.configuration_changed("b");
        let values = scraper.scrape().values;
        assert_eq!(
            values[r#"tower_retry_budget_mode{mode="local_share"}"#],
            1.0
        );
        assert_eq!(values[r#"tower_retry_budget_mode{mode="fleet"}"#], 0.0);
        assert_eq!(
            values[r#"tower_retry_budget_store_errors_total{kind="timeout"}"#],
            2.0
        );
        assert_eq!(values[r#"tower_retry_config_info{hash="a"}"#], 0.0);
        assert_eq!(values[r#"tower_retry_config_info{hash="b"}"#], 1.0);
    });
}

#[test]
fn counts_what_gates_that_are_only_observed_would_have_decided() {
    let metrics = Metrics::new();
    let ledger = Ledger::new([Answer::Deny(StopReason::Budget)]);
    let layer = layer(&metrics, steady(), ledger);
    let at = |gate| Gates::default().with(gate, Mode::Observe);
    let retry = layer.clone().gates(at(Gate::Retry));
    let budget = layer.gates(at(Gate::Budget));
    recorded(&metrics, |scraper| async move {
        for layer in [&retry, &retry, &budget] {
            let service = layer.layer(Script::new([502]));
            send(&service, get()).await.expect("a response");
        }
        let scrape = scraper.scrape();
        let shadow = |labels| {
            let series = format!("tower_retry_shadow_total{{{labels}}}");
            scrape.values.get(&series).copied()
        };
        assert_eq!(shadow(r#"gate="retry",decision="server_error""#), Some(2.0));
        assert_eq!(shadow(r#"gate="budget",decision="budget""#), Some(1.0));
        assert_eq!(scrape.count("shadow_total"), 2);
        // What was not decided is not counted as if it had been.
        assert_eq!(scrape.get("budget_denied_total", ""), None);
        assert_eq!(
            scrape.get("retries_total", r#"cause="server_error""#),
            Some(1.0)
        );
    });
}
