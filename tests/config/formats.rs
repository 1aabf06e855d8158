//! One configuration, whatever it is written in.

use super::toml;
use serde_json::Value;
use tower_retry_budget::config::RetryConfig;

const TOML: &str = r#"
    policy = "search"
    budget = "window"
    layered_retries = "skip_retried"

    [policies.search]
    max_attempts = 4
    total_timeout = "1m30s"
    attempt_timeout = "none"
    backoff = { base = "25ms", factor = 3, jitter = 0.25 }
    statuses = [502, 503]
    on_exhausted = "pass_through"

    [policies.paid]
    preset = "paid_work"

    [budgets.window]
    kind = "window"
    of = "attempts"
    window = "10s"

    [budgets.token]
    ratio = 0.1
    trickle = "none"
    ceiling_ratio = "none"
    costs = { timeout = 2500 }

    [aliases]
    "*.s3.amazonaws.com" = "s3"

    [routes."*.s3.amazonaws.com"]
    policy = "paid"
    budget = "token"

    [gates]
    retry = "observe"

    [headers]
    deadlines = ["X-Deadline-Remaining-Ms", "grpc-timeout"]
    attempt = "none"
"#;

/// The same, in another order.
const JSON: &str = r#"{
    "headers": {"attempt": "none", "deadlines": ["x-deadline-remaining-ms", "grpc-timeout"]},
    "gates": {"retry": "observe", "budget": "enforce"},
    "routes": {"*.s3.amazonaws.com": {"budget": "token", "policy": "paid"}},
    "aliases": {"*.s3.amazonaws.com": "s3"},
    "budgets": {
        "token": {"costs": {"timeout": 2500}, "ceiling_ratio": "none", "trickle": "none", "ratio": 0.1},
        "window": {"kind": "window", "window": "10000ms", "of": "attempts", "ratio": 0.2}
    },
    "policies": {
        "paid": {"preset": "paid_work", "max_attempts": 2},
        "search": {
            "on_exhausted": "pass_through",
            "statuses": [503, 502],
            "backoff": {"jitter": 0.25, "factor": 3.0, "base": "25ms"},
            "attempt_timeout": "none",
            "total_timeout": "90s",
            "max_attempts": 4
        }
    },
    "layered_retries": "skip_retried",
    "budget": "window",
    "policy": "search"
}"#;

fn variables() -> Vec<(&'static str, &'static str)> {
    vec![
        ("PATH", "/bin"),
        ("RETRYING__POLICY", "another"),
        ("RETRY__POLICY", "search"),
        ("RETRY__BUDGET", "window"),
        ("RETRY__LAYERED_RETRIES", "skip_retried"),
        ("RETRY__POLICIES__SEARCH__MAX_ATTEMPTS", "4"),
        ("retry__policies__search__total_timeout", "90s"),
        ("RETRY__POLICIES__SEARCH__ATTEMPT_TIMEOUT", "none"),
        ("RETRY__POLICIES__SEARCH__BACKOFF__BASE", "25ms"),
        ("RETRY__POLICIES__SEARCH__BACKOFF__FACTOR", "3"),
        ("RETRY__POLICIES__SEARCH__BACKOFF__JITTER", "0.25"),
        ("RETRY__POLICIES__SEARCH__STATUSES", "[502, 503]"),
        ("RETRY__POLICIES__SEARCH__ON_EXHAUSTED", "pass_through"),
        ("RETRY__POLICIES__PAID__PRESET", "paid_work"),
        (
            "RETRY__BUDGETS__WINDOW",
            r#"{"kind": "window", "of": "attempts", "window": "10s"}"#,
        ),
        ("RETRY__BUDGETS__TOKEN__RATIO", "0.1"),
        ("RETRY__BUDGETS__TOKEN__TRICKLE", "none"),
        ("RETRY__BUDGETS__TOKEN__CEILING_RATIO", "none"),
        ("RETRY__BUDGETS__TOKEN__COSTS__TIMEOUT", "2500"),
        ("RETRY__ALIASES", r#"{"*.s3.amazonaws.com": "s3"}"#),
        ("RETRY__ROUTES__*.S3.AMAZONAWS.COM__POLICY", "paid"),
        ("RETRY__ROUTES__*.S3.AMAZONAWS.COM__BUDGET", "token"),
        ("RETRY__GATES__RETRY", "observe"),
        ("RETRY__HEADERS__ATTEMPT", "none"),
        (
            "RETRY__HEADERS__DEADLINES",
            r#"["x-deadline-remaining-ms", "grpc-timeout"]"#,
        ),
    ]
}

#[test]
fn toml_json_and_the_environment_say_the_same() {
    let toml = toml(TOML);
    let json = RetryConfig::from_json(JSON).unwrap();
    assert_eq!(toml.effective(), json.effective());
    let env = RetryConfig::from_env("RETRY", variables()).unwrap();
    assert_eq!(toml.effective(), env.effective());
    let mut backwards = variables();
    backwards.reverse();
    let env = RetryConfig::from_env("retry", backwards).unwrap();
    assert_eq!(toml, env);
}

#[test]
fn an_environment_without_the_prefix_says_nothing() {
    let none = RetryConfig::from_env("OTHER", variables()).unwrap();
    assert_eq!(none, RetryConfig::default());
    assert_eq!(none.effective(), "{}");
}

#[test]
fn a_part_of_a_larger_configuration_is_read_with_it() {
    #[derive(serde::Deserialize)]
    struct App {
        listen: String,
        retry: RetryConfig,
    }
    let text = "listen = \"[::]:80\"\n[retry.policies.a]\nmax_attempts = 2";
    let app: App = toml::from_str(text).unwrap();
    assert_eq!(app.listen, "[::]:80");
    assert_eq!(app.retry, toml("[policies.a]\nmax_attempts = 2"));
}

#[test]
fn the_effective_one_writes_the_defaults_out_and_reads_as_the_same_again() {
    let config = toml(TOML);
    let json: Value = serde_json::from_str(config.effective()).unwrap();
    let search = &json["policies"]["search"];
    assert_eq!(search["total_timeout"], "1m30s");
    assert_eq!(search["min_attempt"], "10ms");
    assert_eq!(search["backoff"]["cap"], "20s");
    assert_eq!(search["throttled_backoff"]["jitter"], "equal");
    let paid = &json["policies"]["paid"];
    assert_eq!(
        (&paid["max_attempts"], &paid["preset"]),
        (&2.into(), &Value::Null)
    );
    assert_eq!(json["budgets"]["token"]["cap"], 10);
    assert_eq!(json["budgets"]["window"]["allowance"], 10);
    let again = RetryConfig::from_json(config.effective()).unwrap();
    assert_eq!(
        (again.effective(), again.hash()),
        (config.effective(), config.hash())
    );
    let serialised = serde_json::to_string(&config).unwrap();
    assert_eq!(serialised, config.effective());
}

/// The number is written down: another process, and another machine, has the same.
#[test]
fn the_hash_is_that_of_what_is_in_force() {
    let config = toml("[budgets.a]\nratio = 0.1");
    let expected = concat!(
        r#"{"budgets":{"a":{"kind":"token","ratio":0.1,"cap":10,"initial":5,"trickle":"10s","#,
        r#""ceiling_ratio":0.5,"max_keys":4096}}}"#
    );
    assert_eq!(config.effective(), expected);
    assert_eq!(config.hash(), "271856777ca9efdd");
    assert_eq!(
        toml("[budgets.a]\nratio = 0.10\ncap = 10").hash(),
        config.hash()
    );
    assert_ne!(
        toml("[budgets.a]\nratio = 0.1\ncap = 11").hash(),
        config.hash()
    );
    assert_ne!(toml("[budgets.b]\nratio = 0.1").hash(), config.hash());
}
