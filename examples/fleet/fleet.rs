//! The processes, as seen by the one that started them.

use crate::{
    args,
    process::{Settings, Told},
};
use std::{
    error::Error,
    net::SocketAddr,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

/// How long a process may take to end its calls.
const LONGEST_END: Duration = Duration::from_secs(10);

pub(crate) struct Fleet {
    processes: Vec<Process>,
}

struct Process {
    /// Is killed when dropped, and ends when its standard input does.
    child: Child,
    told: Arc<Mutex<Told>>,
}

impl Fleet {
    pub(crate) fn start(
        processes: u32,
        dependency: SocketAddr,
        redis: &str,
    ) -> Result<Self, Box<dyn Error>> {
        let settings = serde_json::to_string(&Settings {
            dependency: format!("http://{dependency}/"),
            redis: redis.to_owned(),
            processes,
        })?;
        let processes = (0..processes).map(|_| Process::start(&settings));
        Ok(Self {
            processes: processes.collect::<Result<_, _>>()?,
        })
    }

    /// What each process told last.
    pub(crate) fn told(&self) -> Vec<Told> {
        self.processes.iter().map(Process::told).collect()
    }

    /// Ends them all, and returns what they told at the end.
    pub(crate) async fn stop(&mut self) -> Result<Vec<Told>, Box<dyn Error>> {
        for process in &mut self.processes {
            drop(process.child.stdin.take());
        }
        for process in &mut self.processes {
            let status = timeout(LONGEST_END, process.child.wait()).await??;
            if !status.success() {
                return Err(format!("a process ended with {status}").into());
            }
        }
        Ok(self.told())
    }
}

impl Process {
    fn start(settings: &str) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([args::PROCESS, settings])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let told = Arc::new(Mutex::new(Told::default()));
        let lines = child.stdout.take().ok_or("its output is piped")?;
        tokio::spawn(listen(lines, Arc::clone(&told)));
        Ok(Self { child, told })
    }

    fn told(&self) -> Told {
        *self.told.lock().expect("nobody panics with it")
    }
}

async fn listen(lines: ChildStdout, told: Arc<Mutex<Told>>) {
    let mut lines = BufReader::new(lines).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(line) = serde_json::from_str(&line) {
            *told.lock().expect("nobody panics with it") = line;
        }
    }
}
