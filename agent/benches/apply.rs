//! What an apply costs: wall time, system calls, sync barriers and bytes written, for 5 to 5,000 changed files among as many
//! unchanged ones, beside the way that writes, syncs and renames every file of the config, one after the other.
//!
//! `cargo bench -p oneboot-agent` prints the table of `agent/README.md`; it needs `strace`.

#![allow(clippy::unwrap_used)] // a benchmark that cannot go on has nothing to say

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// Changed files; as many unchanged ones beside them.
const SIZES: [usize; 4] = [5, 50, 500, 5000];
/// Of each size, to take the median of.
const RUNS: usize = 5;
/// Of one file: what a file of a rendered MachineConfig has in the median.
const LENGTH: usize = 1000;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, verb, tree, count] = &args[..]
        && verb == "one-by-one"
    {
        one_by_one(Path::new(tree), count.parse().unwrap());
        return;
    }
    println!("| changed + unchanged | way | wall | system calls | syncs | bytes written |");
    println!("|---|---|---|---|---|---|");
    for count in SIZES {
        for way in ["oneboot", "one by one"] {
            let figures = measure(way, count);
            println!("| {count} + {count} | {way} | {figures}");
        }
    }
}

/// Every file of the config, as MCD writes them: temporary name, sync, rename.
fn one_by_one(tree: &Path, count: usize) {
    for n in 0..2 * count {
        let path = path(tree, n);
        let temp = path.with_extension("new");
        let mut file = fs::File::create(&temp).unwrap();
        file.write_all(&content("new", n)).unwrap();
        file.sync_all().unwrap();
        fs::rename(&temp, &path).unwrap();
    }
}

fn path(tree: &Path, n: usize) -> PathBuf {
    tree.join(format!("etc/bench/{}/{n}.conf", n % 50))
}

/// The second half of all files is right already.
fn content(age: &str, n: usize) -> Vec<u8> {
    format!("{age} {n} ").into_bytes().into_iter().cycle().take(LENGTH).collect()
}

/// A tree in which the first `count` files are old, and the config that wants all of them new.
fn lay(count: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut files = Vec::new();
    for n in 0..2 * count {
        let at = path(dir.path(), n);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(&at, content(if n < count { "old" } else { "new" }, n)).unwrap();
        let name = at.strip_prefix(dir.path()).unwrap().display().to_string();
        let text = String::from_utf8(content("new", n)).unwrap().replace(' ', "%20");
        files.push(serde_json::json!({"path": format!("/{name}"), "overwrite": true, "mode": 420,
            "contents": {"source": format!("data:,{text}")}}));
    }
    fs::create_dir_all(dir.path().join("var/lib")).unwrap();
    let config = serde_json::json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}});
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    dir
}

fn command(way: &str, tree: &Path, count: usize) -> Vec<String> {
    let tree = tree.display().to_string();
    if way == "oneboot" {
        let config = format!("{tree}/config.json");
        let program = env!("CARGO_BIN_EXE_oneboot-agent");
        [program, "apply", "--root", &tree, "--desired", &config].map(str::to_owned).to_vec()
    } else {
        let me = std::env::current_exe().unwrap().display().to_string();
        vec![me, "one-by-one".to_owned(), tree, count.to_string()]
    }
}

fn run(args: &[String]) {
    let output = Command::new(&args[0]).args(&args[1..]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn measure(way: &str, count: usize) -> String {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let tree = lay(count);
            let begin = Instant::now();
            run(&command(way, tree.path(), count));
            begin.elapsed()
        })
        .collect();
    times.sort();
    let tree = lay(count);
    let log = tree.path().join("log");
    let strace = ["strace", "-f", "-qq", "-o", log.to_str().unwrap()].map(str::to_owned);
    run(&[&strace[..], &command(way, tree.path(), count)].concat());
    let log = fs::read_to_string(&log).unwrap();
    let calls: Vec<&str> = log.lines().filter(|l| l.contains('(') && !l.contains("resumed>")).collect();
    let named = |names: &[&str]| {
        let call = |l: &str| l.split_once(' ').map(|(_, c)| c.trim_start().to_owned()).unwrap_or_default();
        calls
            .iter()
            .map(|l| call(l))
            .filter(|c| names.iter().any(|n| c.starts_with(&format!("{n}("))))
            .collect::<Vec<_>>()
    };
    let syncs = named(&["fsync", "fdatasync", "syncfs", "sync"]).len();
    let length = |c: &String| c.rsplit_once("= ").and_then(|(_, n)| n.split(' ').next()?.parse::<u64>().ok());
    let bytes: u64 =
        named(&["write", "pwrite64", "copy_file_range", "sendfile"]).iter().filter_map(length).sum();
    format!("{:.1} ms | {} | {syncs} | {bytes} |", times[RUNS / 2].as_secs_f64() * 1e3, calls.len())
}
