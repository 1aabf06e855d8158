//! One budget in a real cluster of three nodes, across a failover.

#[path = "support/redis.rs"]
mod server;

use redis::{aio::MultiplexedConnection, cluster::ClusterClient};
use server::{RedisServer, free_port};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};
use tower_retry_budget::{
    budget::{Budget, Key, RedisBudget, StoreMode, Withdrawal},
    reason::Cause,
};

const KEY: Key = Key::from_static("search");
const ACCOUNT: &str = "{tower-retry-budget:1:search}";

struct Node {
    server: RedisServer,
    bus: u16,
}

impl Node {
    fn start() -> Self {
        let bus = free_port();
        let server = RedisServer::with(&[
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "1000",
            "--repl-diskless-sync-delay",
            "0",
            "--cluster-port",
            &bus.to_string(),
        ]);
        Self { server, bus }
    }

    async fn cluster(&self, arguments: &[&str]) -> String {
        let mut connection: MultiplexedConnection = self.server.connect().await;
        let mut command = redis::cmd("CLUSTER");
        command.arg(arguments);
        let answer: redis::Value = command
            .query_async(&mut connection)
            .await
            .expect("an answer");
        redis::from_redis_value(answer).expect("text")
    }

    async fn has_synced(&self) -> bool {
        let mut connection = self.server.connect().await;
        let info = redis::cmd("INFO").arg("replication").clone();
        let info: String = info.query_async(&mut connection).await.expect("text");
        info.contains("master_link_status:up")
    }

    async fn is_ok(&self) -> bool {
        self.cluster(&["INFO"]).await.contains("cluster_state:ok")
    }
}

async fn until_ok(nodes: &[Node]) {
    for node in nodes {
        while !node.is_ok().await {
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Three masters, each with a replica three places on.
async fn cluster() -> Vec<Node> {
    let nodes: Vec<_> = (0..6).map(|_| Node::start()).collect();
    for node in &nodes[1..] {
        let (port, bus) = (node.server.port().to_string(), node.bus.to_string());
        nodes[0].cluster(&["MEET", "127.0.0.1", &port, &bus]).await;
    }
    for (node, (from, to)) in
        nodes
            .iter()
            .zip([("0", "5460"), ("5461", "10922"), ("10923", "16383")])
    {
        node.cluster(&["ADDSLOTSRANGE", from, to]).await;
    }
    until_ok(&nodes).await;
    for (master, replica) in nodes[..3].iter().zip(&nodes[3..]) {
        let id = master.cluster(&["MYID"]).await;
        while !replica.cluster(&["NODES"]).await.contains(&id) {
            sleep(Duration::from_millis(100)).await;
        }
        replica.cluster(&["REPLICATE", &id]).await;
    }
    for replica in &nodes[3..] {
        while !replica.has_synced().await {
            sleep(Duration::from_millis(100)).await;
        }
    }
    until_ok(&nodes).await;
    nodes
}

fn mode(budget: &RedisBudget) -> Option<StoreMode> {
    budget.snapshot(&KEY, Instant::now().into_std()).mode()
}

async fn ask(budget: &Arc<RedisBudget>) -> u32 {
    let now = Instant::now().into_std();
    budget.deposit(&KEY, true, now);
    let asked = match budget.clone().withdraw(&KEY, Cause::ServerError, now) {
        Withdrawal::Granted(permit) => Some(permit),
        Withdrawal::Pending(asked) => asked.await.ok(),
        _ => None,
    };
    let took = Instant::now().into_std().duration_since(now);
    assert!(took < Duration::from_millis(250), "{took:?}");
    let Some(mut permit) = asked else { return 0 };
    permit.sent();
    1
}

/// Asks until the budget is in that mode, and returns how long that took.
async fn until_mode(budget: &Arc<RedisBudget>, wanted: StoreMode) -> Duration {
    let began = Instant::now();
    while mode(budget) != Some(wanted) {
        assert!(
            began.elapsed() < Duration::from_secs(12),
            "never {wanted:?}"
        );
        assert_eq!(ask(budget).await, 0, "all five are spent");
        sleep(Duration::from_millis(50)).await;
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn works_in_a_cluster_and_across_a_failover() {
    let started = tokio::time::timeout(Duration::from_secs(30), cluster()).await;
    let mut nodes = started.expect("a cluster in time");
    let urls: Vec<_> = nodes[..3].iter().map(|node| node.server.url()).collect();
    let client = ClusterClient::new(urls).expect("valid URLs");
    let connection = client.get_async_connection().await.expect("a cluster");
    let budget = RedisBudget::with_connection(connection)
        .no_trickle()
        .build();
    let budget = Arc::new(budget.expect("valid settings"));
    let mut granted = 0;
    for _ in 0..20 {
        granted += ask(&budget).await;
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(granted, 5);
    assert_eq!(mode(&budget), Some(StoreMode::Fleet));

    let slot = nodes[0].cluster(&["KEYSLOT", ACCOUNT]).await;
    let master = slot.parse::<usize>().expect("a slot") * 3 / 16384;
    nodes[master].server.kill();
    let lost = until_mode(&budget, StoreMode::LocalShare).await;
    let back = until_mode(&budget, StoreMode::Fleet).await;
    println!("local share {lost:?} after the master's end, the fleet's again {back:?} later");
}
