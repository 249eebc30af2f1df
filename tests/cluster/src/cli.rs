//! Owns the command line: what can be typed, which function that is, which code it ends with.
//! Given arguments, gives an exit code.
//! Never does the work itself: that is `serve` and `cmd`.

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use time::Duration;

use crate::certs::Rotation;
use crate::client::Client;
use crate::clock::Clock;
use crate::exit;
use crate::layout::Layout;
use crate::pointer::TokenIn;
use crate::serve::{self, Part};
use crate::{cmd, tokens};

/// The reference control plane: API, machine config server, renderer, approver.
#[derive(Debug, Parser)]
#[command(name = "oneboot-cluster", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the control plane, or some of its parts, until SIGTERM.
    Serve(Serve),
    /// Print a pointer config as the installer would.
    Pointer {
        #[command(flatten)]
        at: At,
        /// Which pool's config it points at.
        #[arg(long, default_value = "worker")]
        pool: String,
        /// Where the current token goes.
        #[arg(long, value_enum, default_value = "header")]
        token_in: TokenIn,
    },
    /// Provisioning tokens.
    Token {
        #[command(flatten)]
        at: At,
        #[command(subcommand)]
        action: Token,
    },
    /// Create or update objects from files, and wait until MachineConfigs among them are rendered.
    Apply {
        #[command(flatten)]
        at: At,
        /// JSON or YAML, one or many documents; `-` is standard input. May be given several times.
        #[arg(short = 'f', long = "filename", required = true)]
        files: Vec<String>,
        /// Do not wait for the renderer.
        #[arg(long)]
        no_wait: bool,
    },
    /// Print objects.
    Get {
        #[command(flatten)]
        at: At,
        /// As nodes, csr, mc, mcp, secrets.
        kind: String,
        /// One object.
        name: Option<String>,
        /// Where it lives, for kinds that live somewhere.
        #[arg(short, long)]
        namespace: Option<String>,
        /// The form.
        #[arg(short, long, value_enum, default_value = "name")]
        output: Output,
    },
    /// Approve a certificate signing request; its node may read its pool's configs first.
    Approve {
        #[command(flatten)]
        at: At,
        /// The request.
        name: String,
        /// The node's pool, if neither a Machine nor a token says it.
        #[arg(long)]
        pool: Option<String>,
    },
    /// Deny a certificate signing request.
    Deny {
        #[command(flatten)]
        at: At,
        /// The request.
        name: String,
    },
    /// The machine config server's CA and certificate.
    Certs {
        #[command(flatten)]
        at: At,
        #[command(subcommand)]
        action: Certs,
    },
    /// Machines: what the approver knows nodes from.
    Machine {
        #[command(flatten)]
        at: At,
        #[command(subcommand)]
        action: Machine,
    },
    /// Install two rendered MachineConfigs of your own as a pool's; the renderer then leaves the pool alone.
    Rendered {
        #[command(flatten)]
        at: At,
        /// Any name.
        #[arg(long)]
        pool: String,
        /// What is sent before approval.
        #[arg(long)]
        pre: PathBuf,
        /// Everything.
        #[arg(long)]
        post: PathBuf,
    },
    /// Let requests to the API fail, as a busy or restarted one's do: for tests of who makes them.
    Fault {
        #[command(flatten)]
        at: At,
        /// 429, 410, or 410-event: an ERROR event to a watch, also to one that runs already.
        #[arg(long, value_parser = ["429", "410", "410-event"])]
        answer: String,
        /// Whose path starts with this.
        #[arg(long)]
        path: String,
        /// Whose user name starts with this, as `system:node:`.
        #[arg(long, default_value = "")]
        user: String,
        /// Only these: get, list, watch, create, update, patch, delete.
        #[arg(long)]
        verb: Option<String>,
        /// How many requests.
        #[arg(long, default_value_t = 1)]
        times: u32,
        /// Seconds that a 429 asks to wait.
        #[arg(long, default_value_t = 1)]
        retry_after: u32,
    },
    /// Print the boot reports that nodes have sent, oldest first, one JSON object a line.
    Reports {
        #[command(flatten)]
        at: At,
    },
}

/// Which API.
#[derive(Debug, Args)]
struct At {
    /// Data directory of a `serve`: its admin kubeconfig is used.
    #[arg(long, global = true)]
    dir: Option<PathBuf>,
    /// Another kubeconfig.
    #[arg(long, global = true, conflicts_with = "dir")]
    kubeconfig: Option<PathBuf>,
}

impl At {
    fn client(&self) -> anyhow::Result<Client> {
        let path = match (&self.kubeconfig, &self.dir) {
            (Some(path), _) => path.clone(),
            (None, Some(dir)) => Layout::at(dir).kubeconfig("admin"),
            (None, None) => {
                return Err(exit::failure(exit::USAGE, "say which API: --dir DIR or --kubeconfig FILE"));
            }
        };
        Ok(Client::open(&path)?)
    }
}

#[derive(Debug, Args)]
struct Serve {
    /// Where state, keys and kubeconfigs are kept; made if it is not there.
    #[arg(long)]
    dir: PathBuf,
    /// Where the API listens; port 0 is any, and the same again at the next start.
    #[arg(long, default_value = "127.0.0.1:6443")]
    api: SocketAddr,
    /// Where the machine config server listens.
    #[arg(long, default_value = "127.0.0.1:22623")]
    mcs: SocketAddr,
    /// Host name or address for certificates and URLs; may be given several times, the first is in URLs.
    #[arg(long = "name")]
    names: Vec<String>,
    /// Who approves certificate requests.
    #[arg(long, value_enum, default_value = "auto")]
    approve: Approve,
    /// Serve configs without asking for a token, as today's clusters do.
    #[arg(long)]
    no_token: bool,
    /// The MachineConfig CRD has `spec.neededBeforeNodeApproved`.
    #[arg(long)]
    extended_crd: bool,
    /// How long an approved bootstrap request may wait for its node to be in a pool's read binding before it is
    /// signed without; 0s is a stock cluster's signer.
    #[arg(long, default_value = "5s", value_parser = duration)]
    signer_waits: Duration,
    /// Run only these parts; the others are other processes.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Use this kubeconfig instead of each part's own in DIR.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Approve {
    /// The decision table of cluster-machine-approver.
    Auto,
    /// A person, with `oneboot-cluster approve`.
    Manual,
}

/// How objects are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Kind and name.
    Name,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

#[derive(Debug, Subcommand)]
enum Token {
    /// Make a token and print it; pointers carry it from now on.
    New {
        /// Only for this pool; every pool without.
        #[arg(long)]
        pool: Option<String>,
        /// How long it is good.
        #[arg(long, default_value = "24h", value_parser = duration)]
        ttl: Duration,
        /// Only for this node: it is not put into pointers, and says which pool the node is of.
        #[arg(long)]
        node: Option<String>,
    },
    /// Make a new current token; the previous one stays good for a while.
    Rotate {
        /// The pool whose own token is rotated.
        #[arg(long)]
        pool: Option<String>,
        /// How long the new one is good.
        #[arg(long, default_value = "24h", value_parser = duration)]
        ttl: Duration,
        /// How long the previous one stays good.
        #[arg(long, default_value = "1h", value_parser = duration)]
        grace: Duration,
    },
    /// List digests, pools, ends.
    List,
    /// Take a token away at once.
    Revoke {
        /// The digest's first characters, as `list` shows them.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
enum Certs {
    /// Rotate in two steps, first the CA, then the serving certificate; without an option, the next of the two.
    Rotate {
        /// A new CA: pointers carry it from now on, beside the old one.
        #[arg(long)]
        ca: bool,
        /// A serving certificate by the newest CA.
        #[arg(long, conflicts_with = "ca")]
        serving: bool,
    },
    /// Take every CA but the newest out of the bundle: pointers from before it stop working.
    Retire,
}

#[derive(Debug, Subcommand)]
enum Machine {
    /// Add a Machine whose internal DNS name is NAME.
    Add {
        /// The node's name.
        name: String,
        /// The node's pool.
        #[arg(long)]
        pool: String,
    },
}

/// `90s`, `15m`, `24h`, `7d`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration; write 90s, 15m, 24h or 7d");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let number: u32 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| wrong())?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86400,
        _ => return Err(wrong()),
    };
    Ok(Duration::seconds(i64::from(number) * seconds))
}

/// Parses, runs, prints the one error there may be.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let printed = error.print();
            let code = if error.use_stderr() { exit::USAGE } else { 0 };
            return ExitCode::from(if printed.is_err() { exit::IO } else { code });
        }
    };
    // Standard output is for results; what happens goes to standard error.
    let level = if std::env::var_os("ONEBOOT_CLUSTER_DEBUG").is_some() {
        tracing::Level::DEBUG
    } else {
        tracing::Level::INFO
    };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_max_level(level).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("oneboot-cluster: cannot start the runtime: {error}");
            return ExitCode::from(exit::SOFTWARE);
        }
    };
    match runtime.block_on(run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oneboot-cluster: {error:#}");
            ExitCode::from(exit::code(&error))
        }
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(options) => serve::run(options.into()).await,
        Command::Pointer { at, pool, token_in } => cmd::pointer(&at.client()?, &pool, token_in).await,
        Command::Token { at, action } => {
            let client = at.client()?;
            match action {
                Token::New { pool, ttl, node } => {
                    cmd::token_new(&client, tokens::Wish { pool, node, ttl, grace: None }).await
                }
                Token::Rotate { pool, ttl, grace } => {
                    cmd::token_new(&client, tokens::Wish { pool, node: None, ttl, grace: Some(grace) }).await
                }
                Token::List => cmd::token_list(&client).await,
                Token::Revoke { id } => cmd::token_revoke(&client, &id).await,
            }
        }
        Command::Apply { at, files, no_wait } => cmd::apply(&at.client()?, &files, !no_wait).await,
        Command::Get { at, kind, name, namespace, output } => {
            cmd::get(&at.client()?, &kind, name.as_deref(), namespace.as_deref(), output).await
        }
        Command::Approve { at, name, pool } => cmd::approve(&at.client()?, &name, pool.as_deref()).await,
        Command::Deny { at, name } => cmd::deny(&at.client()?, &name).await,
        Command::Certs { at, action } => {
            let rotation = match action {
                Certs::Rotate { ca: true, .. } => Rotation::Ca,
                Certs::Rotate { serving: true, .. } => Rotation::Serving,
                Certs::Rotate { .. } => Rotation::Next,
                Certs::Retire => Rotation::Retire,
            };
            cmd::certs(&at.client()?, rotation).await
        }
        Command::Machine { at, action: Machine::Add { name, pool } } => {
            cmd::machine_add(&at.client()?, &name, &pool).await
        }
        Command::Rendered { at, pool, pre, post } => cmd::rendered(&at.client()?, &pool, &pre, &post).await,
        Command::Fault { at, answer, path, user, verb, times, retry_after } => {
            let fault = json!({"answer": answer, "path": path, "user": user, "verb": verb, "times": times,
                "retryAfter": retry_after});
            at.client()?.post(crate::api::FAULTS, &fault).await.map(drop).map_err(Into::into)
        }
        Command::Reports { at } => cmd::reports(&at.client()?).await,
    }
}

impl From<Serve> for serve::Options {
    fn from(serve: Serve) -> Self {
        // What a client on this machine may call it, beside what it is told to be called.
        let mut names = serve.names;
        let given = [serve.api.ip().to_string(), serve.mcs.ip().to_string()]
            .into_iter()
            .filter(|ip| ip != "0.0.0.0" && ip != "::");
        for name in given.chain(["127.0.0.1".to_owned(), "localhost".to_owned()]) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Self {
            dir: serve.dir,
            api: serve.api,
            mcs: serve.mcs,
            names,
            only: serve.only,
            kubeconfig: serve.kubeconfig,
            approve: serve.approve == Approve::Auto,
            no_token: serve.no_token,
            extended: serve.extended_crd,
            signer_waits: serve.signer_waits.unsigned_abs(),
            clock: Clock::default(),
        }
    }
}
