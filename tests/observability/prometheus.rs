//! A Prometheus of one's own, as long as a test runs.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Where the example is.
pub(crate) const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/observability");

pub(crate) fn missing(program: &str, error: &io::Error) -> ! {
    panic!("{program}: {error}. Debian has it in the package prometheus; tests/run installs it")
}

pub(crate) struct Prometheus {
    child: Child,
    directory: PathBuf,
    address: SocketAddr,
    client: reqwest::Client,
}

impl Prometheus {
    /// Scrapes `target` each second, and evaluates the example's alerts.
    pub(crate) fn start(target: SocketAddr) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = port.expect("a free port");
        let name = format!("tower-retry-budget-{}", address.port());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a directory");
        let config = directory.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [{EXAMPLE:?}/alerts.yml]\n\
             scrape_configs: [{{job_name: shop, static_configs: [{{targets: [{target}]}}]}}]\n",
        );
        let text = text.replace("\"/alerts.yml", "/alerts.yml\"");
        std::fs::write(&config, text).expect("a file");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=error")
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| missing("prometheus", &error));
        Self {
            child,
            directory,
            address,
            client: reqwest::Client::new(),
        }
    }

    /// The result of an instant query: one value for each series. Nothing before it has started.
    pub(crate) async fn query(&self, expression: &str) -> Vec<f64> {
        let url = format!(
            "http://{}/api/v1/query?query={}",
            self.address,
            encoded(expression)
        );
        let Ok(response) = self.client.get(url).send().await else {
            return Vec::new();
        };
        let Ok(answer) = response.json::<serde_json::Value>().await else {
            return Vec::new();
        };
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        let series = answer["data"]["result"].as_array().into_iter().flatten();
        let values = series.filter_map(|series| series["value"][1].as_str()?.parse().ok());
        values.collect()
    }

    /// Asks until there is an answer that is a number.
    pub(crate) async fn until(&self, expression: &str) -> Vec<f64> {
        for _ in 0..240 {
            let values = self.query(expression).await;
            if values.iter().any(|value| !value.is_nan()) {
                return values;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        panic!("no data after a minute: {expression}")
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn encoded(text: &str) -> String {
    let bytes = text.bytes();
    bytes.map(|byte| format!("%{byte:02x}")).collect()
}
