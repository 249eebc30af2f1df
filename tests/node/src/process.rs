//! Owns: the processes a run starts, and their logs.
//! Given programs and arguments, gives finished runs with their output, or children whose lines arrive as they are printed.
//! Never: leaves a child behind: dropping one ends it, by its own pid, and the kernel does when this process is killed.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::Context as _;

/// Where the four programs are.
#[derive(Debug, Clone)]
pub struct Programs {
    dir: PathBuf,
}

impl Programs {
    /// The programs beside the running one, which is where cargo puts a workspace's binaries (one level up for a test).
    ///
    /// # Errors
    /// When one is missing, with the command that builds it.
    pub fn beside_this() -> anyhow::Result<Self> {
        let this = std::env::current_exe().context("finding the running program")?;
        let dir = this.parent().context("a program has a folder")?;
        let dir = if dir.ends_with("deps") { dir.parent().context("deps has a parent")? } else { dir };
        let programs = Self { dir: dir.to_owned() };
        for name in ["oneboot-firstboot", "oneboot-agent", "oneboot-cluster", "oneboot-kubelet"] {
            let path = programs.path(name);
            anyhow::ensure!(
                path.exists(),
                "{} is not built; run: cargo build --workspace --bins",
                path.display()
            );
        }
        Ok(programs)
    }

    /// The path of one program.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A command for one program, with no standard input and nothing of ours in its environment that could stand in for a file.
    pub fn command(&self, name: &str) -> Command {
        let mut command = tied(&self.path(name));
        command.stdin(Stdio::null());
        for inherited in ["NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY", "KUBECONFIG"] {
            command.env_remove(inherited);
        }
        command
    }
}

/// A command whose process is killed when the thread that started it is gone, also if that has been killed itself. Needs no rights and
/// no help from the program: `setpriv` (util-linux) asks the kernel for it (`PR_SET_PDEATHSIG`) and becomes the program, under the same pid.
/// Whoever has lost its parent before it could ask is found by the shell in between, and ends.
pub fn tied(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sh", "-c", r#"[ "$PPID" = "$0" ] && exec "$@""#]);
    command.arg(std::process::id().to_string()).arg(program);
    command
}

/// A process that has ended: its status and all it printed.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Finished {
    /// The exit code; a process ended by a signal has none.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Itself when it succeeded.
    ///
    /// # Errors
    /// With what it printed last, when it did not.
    pub fn success(self, what: &str) -> anyhow::Result<Self> {
        anyhow::ensure!(self.status.success(), "{what}: {}\n{}", self.status, last_lines(&self.stderr, 10));
        Ok(self)
    }
}

/// Runs a command to its end.
///
/// # Errors
/// When it cannot be started.
pub fn finish(command: &mut Command) -> anyhow::Result<Finished> {
    let output = command.output().with_context(|| format!("starting {}", command.get_program().display()))?;
    Ok(Finished {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// A process that goes on. Its standard error goes to `NAME.log`, its standard output to `NAME.out`, and the lines of both, as they come,
/// to whoever waits for one.
#[derive(Debug)]
pub struct Child {
    name: String,
    inner: std::process::Child,
    lines: Receiver<Line>,
    log: PathBuf,
}

/// A line that a child has printed.
#[derive(Debug)]
pub struct Line {
    /// Without its end.
    pub text: String,
    /// Whether it came on standard error, where programs say what they do, or on standard output, where they leave results.
    pub is_log: bool,
}

impl std::ops::Deref for Line {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Child {
    /// Starts `command`, logging to `log` and to the same path ending in `out`.
    ///
    /// # Errors
    /// When it cannot be started, or a log not written.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let open = |path: &Path| {
            File::options()
                .create(true)
                .append(true)
                .open(path)
                .with_context(|| format!("opening {}", path.display()))
        };
        let (out_file, err_file) = (open(&log.with_extension("out"))?, open(log)?);
        let mut inner = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        let (sender, lines) = channel();
        let out = inner.stdout.take().context("stdout was asked for as a pipe")?;
        let err = inner.stderr.take().context("stderr was asked for as a pipe")?;
        let both: [(Box<dyn std::io::Read + Send>, File, bool); 2] =
            [(Box::new(out), out_file, false), (Box::new(err), err_file, true)];
        for (stream, mut file, is_log) in both {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    // A full disk or a reader that has gone must not stop the child: both are only watching.
                    let _ = writeln!(file, "{line}");
                    let _ = sender.send(Line { text: line, is_log });
                }
            });
        }
        Ok(Self { name: name.to_owned(), inner, lines, log: log.to_owned() })
    }

    /// Waits for the first line that `wanted` gives a value for.
    ///
    /// # Errors
    /// When the process ends before, with its last lines.
    pub fn wait_for<T>(&mut self, mut wanted: impl FnMut(&Line) -> Option<T>) -> anyhow::Result<T> {
        while let Ok(line) = self.lines.recv() {
            if let Some(found) = wanted(&line) {
                return Ok(found);
            }
        }
        let status = self.inner.wait().with_context(|| format!("waiting for {}", self.name))?;
        anyhow::bail!("{} ended first ({status})\n{}", self.name, self.last_lines())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When the operating system cannot say how it ended.
    pub fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        self.inner.wait().with_context(|| format!("waiting for {}", self.name))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.inner.try_wait(), Ok(None))
    }

    /// Ends it at once, as a power cut would, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.inner.kill(); // it may have ended by itself
        let _ = self.inner.wait();
    }

    /// The last ten lines of its log.
    pub fn last_lines(&self) -> String {
        last_lines(&std::fs::read_to_string(&self.log).unwrap_or_default(), 10)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_gone_when_dropped_and_its_lines_are_kept() {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let log = dir.path().join("log.log");
        let mut command = Command::new("sh");
        command.args(["-c", "echo first; echo second >&2; exec sleep 600"]);
        let mut child = Child::start("sh", &mut command, &log).expect("started");
        // Two pipes, in no order between them.
        let mut seen = 0;
        child
            .wait_for(|_| {
                seen += 1;
                (seen == 2).then_some(())
            })
            .expect("both lines");
        let pid = child.pid();
        assert!(child.is_running());
        drop(child);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        assert!(std::fs::read_to_string(&log).expect("a log").contains("second"));
        assert_eq!(std::fs::read_to_string(dir.path().join("log.out")).expect("the output"), "first\n");
    }

    #[test]
    fn waiting_for_a_line_of_a_process_that_ends_says_how_it_ended() {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let mut command = Command::new("sh");
        command.args(["-c", "echo the reason; exit 7"]);
        let mut child = Child::start("sh", &mut command, &dir.path().join("log")).expect("started");
        let error = child.wait_for(|_| None::<()>).expect_err("it ends").to_string();
        assert!(error.contains("exit status: 7"), "{error}");
    }
}
