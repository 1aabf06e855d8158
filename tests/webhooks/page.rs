//! The page, in a real browser.

use crate::{
    alone,
    endpoint::{Answers, Endpoint, args},
    process::Folder,
};
use std::{env, process::Command, time::Duration};

/// What a browser needs to run alone, as root, and without the network.
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=4000",
    "--dump-dom",
];

fn chromium() -> &'static str {
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok())
        .expect("no Chromium: `apt-get install chromium` installs it, and so does `tests/run`")
}

/// The page as the browser has it after four seconds of its own clock.
async fn dom(url: String) -> String {
    let profile = env::temp_dir().join(format!("webhooks-profile-{}", std::process::id()));
    let browser = tokio::task::spawn_blocking(move || {
        let output = Command::new(chromium())
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(url)
            .output();
        _ = std::fs::remove_dir_all(profile);
        output.expect("it runs")
    });
    let output = browser.await.expect("no panic");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shows_endpoints_and_dead_letters_and_keeps_itself_up_to_date() {
    let _alone = alone().await;
    let well = Endpoint::start("invoices", Answers::Well).await;
    let gone = Endpoint::start("archive", Answers::Gone).await;
    let folder = Folder::new("page");
    let process = folder.start(&args(&[&well, &gone], &[]));
    for n in 0..7 {
        process.accept("invoices", &format!("invoice-{n}")).await;
    }
    process.accept("archive", "archived").await;
    let ids: Vec<_> = (0..7)
        .map(|n| format!("invoice-{n}"))
        .chain(["archived".into()])
        .collect();
    process.finish(&ids, Duration::from_secs(20)).await;
    let page = dom(format!("http://{}/", process.address)).await;
    let shows = |text: &str| assert!(page.contains(text), "no {text} in {page}");
    shows("<b>7</b>delivered");
    shows("<b>1</b>dead");
    shows("<b>1</b>quarantined");
    shows("<span>invoices</span><span>well</span>");
    shows("<span>archive</span><span>quarantined</span>");
    shows("<code>archived</code>");
    shows(r#"<td class="reason">gone</td><td>410</td><td>1</td>"#);
    shows("budget: ");
    shows("replay 1 dead");
    let (_, updates) = page.split_once("data-updates=\"").expect("it was updated");
    let (updates, _) = updates.split_once('"').expect("a number");
    let updates: u32 = updates.parse().expect("a number");
    assert!(updates >= 3, "{updates} updates in 4 s");
}
