//! What `promtool` says of the alerts.

use super::prometheus::{EXAMPLE, missing};
use std::process::Command;

fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(EXAMPLE)
        .output();
    let output = output.unwrap_or_else(|error| missing("promtool", &error));
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
}

#[test]
fn the_rules_are_valid() {
    promtool(&["check", "rules", "alerts.yml"]);
    promtool(&["check", "config", "prometheus.yml"]);
}

#[test]
fn each_alert_fires_when_it_should_and_only_then() {
    promtool(&["test", "rules", "alerts_test.yml"]);
}

#[test]
fn each_alert_is_tested_both_ways() {
    let alerts = include_str!("../../examples/observability/alerts.yml");
    let tests = include_str!("../../examples/observability/alerts_test.yml");
    let mut names = alerts
        .split("- alert: ")
        .skip(1)
        .filter_map(|rule| rule.lines().next());
    assert!(names.clone().count() > 0);
    assert!(names.all(|name| {
        let of = format!("ALERTS{{alertname=\"{name}\"");
        let tests = tests.split("- name: ").filter(|test| test.contains(&of));
        let (quiet, firing): (Vec<_>, Vec<_>) =
            tests.partition(|test| test.contains("exp_samples: []"));
        !quiet.is_empty() && !firing.is_empty()
    }));
}
