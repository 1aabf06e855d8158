//! What cannot be is refused, with its place.

use super::read;
use tower_retry_budget::config::RetryConfig;

/// The path, and the message with its line.
fn refused(text: &str) -> (String, String) {
    let error = read(text).expect_err(text);
    (error.path, error.message)
}

#[test]
fn an_unknown_field_is_refused_with_its_path_and_its_line() {
    let (path, message) = refused("policy = \"a\"\n[policies.a]\nmax_atempts = 3\n");
    assert_eq!(path, "policies.a.max_atempts");
    assert!(message.contains("unknown field `max_atempts`"), "{message}");
    assert!(message.contains("line 3"), "{message}");
    for (text, path) in [
        ("polices = {}", "polices"),
        ("[budgets.b]\nratoi = 1", "budgets.b.ratoi"),
        ("[gates]\nretries = \"off\"", "gates.retries"),
        ("[headers]\nattempts = \"x\"", "headers.attempts"),
        (
            "[policies.a.backoff]\nmax = \"1s\"",
            "policies.a.backoff.max",
        ),
        ("[adaptive]\nerror_rate = []", "adaptive.error_rate"),
        ("[hold_off]\nlong = \"1s\"", "hold_off.long"),
        ("[routes.\"a.b\"]\npolcy = \"x\"", "routes.a.b.polcy"),
    ] {
        assert_eq!(refused(text).0, path, "{text}");
    }
}

#[test]
fn a_value_that_cannot_be_is_refused_with_its_path() {
    for (text, path, says) in [
        (
            "[policies.a]\nmax_attempts = 0",
            "policies.a.max_attempts",
            "at least 1",
        ),
        (
            "[adaptive]\nerror_rates = [[1.5, 0.3]]",
            "adaptive.error_rates",
            "rates over 0",
        ),
        (
            "[policies.a]\nmax_attempts = -1",
            "policies.a.max_attempts",
            "u32",
        ),
        (
            "[policies.a]\nmax_attempts = \"3\"",
            "policies.a.max_attempts",
            "u32",
        ),
        (
            "[policies.a]\ntotal_timeout = \"0s\"",
            "policies.a.total_timeout",
            "at least 1 ms",
        ),
        (
            "[policies.a]\ntotal_timeout = 30",
            "policies.a.total_timeout",
            "\"250ms\"",
        ),
        (
            "[policies.a]\nmin_attempt = \"5\"",
            "policies.a.min_attempt",
            "\"250ms\"",
        ),
        (
            "[policies.a]\nmin_attempt = \"none\"",
            "policies.a.min_attempt",
            "\"250ms\"",
        ),
        (
            "[policies.a]\nattempt_timeout_share = 2",
            "policies.a.attempt_timeout_share",
            "at most 1",
        ),
        (
            "[policies.a]\nattempt_timeout_share = 0.5\nattempt_timeout = \"1s\"",
            "policies.a.attempt_timeout_share",
            "nothing beside",
        ),
        (
            "[policies.a.backoff]\nfactor = 0.5",
            "policies.a.backoff.factor",
            "at least 1",
        ),
        (
            "[policies.a.backoff]\nfactor = nan",
            "policies.a.backoff.factor",
            "finite",
        ),
        (
            "[policies.a.backoff]\njitter = 7",
            "policies.a.backoff.jitter",
            "within 0 to 1",
        ),
        (
            "[policies.a.backoff]\njitter = \"most\"",
            "policies.a.backoff.jitter",
            "\"equal\"",
        ),
        (
            "[policies.a.throttled_backoff]\nfactor = 0",
            "policies.a.throttled_backoff.factor",
            "at least 1",
        ),
        (
            "[policies.a]\npreset = \"cheap\"",
            "policies.a.preset",
            "internal_call",
        ),
        (
            "[policies.a]\nstatuses = [502, 1000]",
            "policies.a.statuses",
            "a status",
        ),
        (
            "[policies.a]\nstatuses = \"most\"",
            "policies.a.statuses",
            "\"webhooks\"",
        ),
        (
            "[policies.a]\non_exhausted = \"panic\"",
            "policies.a.on_exhausted",
            "pass_through",
        ),
        (
            "[policies.a]\ninstance_header = \"x y\"",
            "policies.a.instance_header",
            "header",
        ),
        ("[budgets.b]\nratio = -1", "budgets.b.ratio", "0 to 1000"),
        (
            "[budgets.b]\ncap = 3\ninitial = 4",
            "budgets.b.initial",
            "at most the cap",
        ),
        (
            "[budgets.b]\ntrickle = \"0s\"",
            "budgets.b.trickle",
            "expected",
        ),
        (
            "[budgets.b]\nceiling_ratio = \"off\"",
            "budgets.b.ceiling_ratio",
            "\"none\"",
        ),
        (
            "[budgets.b]\nmax_keys = 0",
            "budgets.b.max_keys",
            "at least one",
        ),
        ("[budgets.b]\nkind = \"redis\"", "budgets.b.kind", "token"),
        (
            "[budgets.b]\nwindow = \"1s\"",
            "budgets.b.window",
            "kind \"window\"",
        ),
        (
            "[budgets.b]\nkind = \"window\"\ncap = 3",
            "budgets.b.cap",
            "kind \"token\"",
        ),
        (
            "[budgets.b]\nkind = \"window\"\nwindow = \"1us\"",
            "budgets.b.window",
            "1 ms",
        ),
        (
            "[budgets.b.costs]\ntimeouts = 1",
            "budgets.b.costs.timeouts",
            "throttled",
        ),
        (
            "[budgets.b.costs]\ntimeout = 1000001",
            "budgets.b.costs",
            "at most 1000000",
        ),
        ("policy = \"a\"", "policy", "no policy \"a\""),
        ("budget = \"b\"", "budget", "no budget \"b\""),
        (
            "[routes.h]\npolicy = \"a\"",
            "routes.h.policy",
            "no policy \"a\"",
        ),
        (
            "[routes.h]\nbudget = \"b\"",
            "routes.h.budget",
            "no budget \"b\"",
        ),
        ("[routes.\"http://h\"]", "routes.http://h", "a host"),
        ("[aliases]\n\"a.*.b\" = \"x\"", "aliases.a.*.b", "a host"),
        ("[aliases]\nA = \"x\"\na = \"y\"", "aliases.a", "twice"),
        ("[gates]\nretry = \"on\"", "gates.retry", "enforce"),
        (
            "layered_retries = \"never\"",
            "layered_retries",
            "skip_retried",
        ),
        ("[headers]\nattempt = \"x y\"", "headers.attempt", "header"),
        (
            "[headers]\ndeadlines = [\"ok\", \"x y\"]",
            "headers.deadlines[1]",
            "header",
        ),
    ] {
        let (found, message) = refused(text);
        assert_eq!(found, path, "{text}: {message}");
        assert!(message.contains(says), "{text}: {message}");
    }
}

#[test]
fn an_error_prints_its_path_once() {
    let error = read("[policies.a]\nmax_attempts = 0").unwrap_err();
    let expected = "policies.a.max_attempts: 0: expected at least 1: the first attempt counts";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn malformed_json_is_refused_and_so_is_what_follows_it() {
    for text in ["", "{", "{} {}", "null"] {
        RetryConfig::from_json(text).expect_err(text);
    }
    assert_eq!(
        RetryConfig::from_json("{} ").unwrap(),
        RetryConfig::default()
    );
}

#[test]
fn variables_are_refused_with_their_path() {
    let refused = |variables: &[(&str, &str)]| {
        let variables = variables.iter().copied();
        RetryConfig::from_env("R", variables).unwrap_err().path
    };
    assert_eq!(
        refused(&[("R__POLICIES__A__MAX_ATEMPTS", "3")]),
        "policies.a.max_atempts"
    );
    assert_eq!(
        refused(&[("R__POLICIES__A__MAX_ATTEMPTS", "x")]),
        "policies.a.max_attempts"
    );
    let whole = ("R__POLICIES__A", r#"{"max_attempts": 3}"#);
    let part = ("R__POLICIES__A__MAX_ATTEMPTS", "3");
    assert_eq!(refused(&[whole, part]), "policies.a.max_attempts");
    assert_eq!(refused(&[part, whole]), "policies.a");
    assert_eq!(
        refused(&[("R__POLICY", "a"), ("R__POLICY__B", "c")]),
        "policy.b"
    );
    assert_eq!(refused(&[("R__", "a")]), "");
}

/// As a part of something else, the place is in the message.
#[test]
fn a_part_of_a_larger_configuration_is_refused_with_the_place_in_it() {
    #[derive(Debug, serde::Deserialize)]
    struct App {
        #[serde(rename = "retry")]
        _retry: RetryConfig,
    }
    let text = "[retry.policies.a]\nmax_attempts = 0";
    let error = toml::from_str::<App>(text).unwrap_err().to_string();
    assert!(error.contains("policies.a.max_attempts"), "{error}");
}
