//! Commands of the connection itself: which part of the session answers each.

use super::{Desk, Session, acl, admin, calls, channels, config, durability, info, memory, observe};
use redis_surface::table::{ConnectionCommand, OrdoClusterCommand};
use txn::{Args, Reply};

impl Session {
    /// Runs a command of the connection itself. `None` if it is answered later, or never.
    pub(super) fn own_command(
        &mut self,
        desk: &mut Desk<'_>,
        command: ConnectionCommand,
        argv: &Args,
    ) -> Option<Reply> {
        if self.listen(desk, command, argv) {
            return None;
        }
        match command {
            ConnectionCommand::Multi => Some(self.multi()),
            ConnectionCommand::Exec => self.exec(desk),
            ConnectionCommand::Discard => Some(self.discard()),
            ConnectionCommand::Watch => self.watch(desk, argv),
            ConnectionCommand::Quit => {
                self.answer(desk, &Reply::OK);
                self.close_after_replies();
                None
            }
            ConnectionCommand::Reset => Some(self.reset(desk)),
            ConnectionCommand::Monitor => Some(self.monitor(desk)),
            ConnectionCommand::Shutdown => self.shutdown(desk, argv),
            ConnectionCommand::ClientReply => self.set_speech(&argv[2]),
            ConnectionCommand::ClientTracking => self.track(desk, &argv[2..]),
            ConnectionCommand::Save => {
                self.save(desk);
                None
            }
            ConnectionCommand::WaitAof => self.wait_for_disk(desk, &argv[1..]),
            ConnectionCommand::AclLoad => self.load_users(desk),
            ConnectionCommand::ConfigSet => match config::set(desk, &argv[2..]) {
                Reply::Status(_) if config::names(argv, "requirepass") => self.set_default_password(desk),
                reply => Some(reply),
            },
            ConnectionCommand::OrdoCluster(change)
                if !matches!(change, OrdoClusterCommand::Status | OrdoClusterCommand::Map) =>
            {
                self.change_cluster(desk, change, argv)
            }
            plain => Some(self.value_command(desk, plain, argv)),
        }
    }

    /// Runs a command of the connection itself that does nothing but reply: what a block may hold as well.
    pub(super) fn value_command(
        &mut self,
        desk: &mut Desk<'_>,
        command: ConnectionCommand,
        argv: &Args,
    ) -> Reply {
        use ConnectionCommand as C;
        match command {
            C::AclWhoAmI => self.who_am_i(),
            C::AclGenPass => acl::generate_password(argv),
            C::AclLog => acl::log(desk, argv),
            C::AclSave => acl::save_users(desk),
            C::Auth => self.auth(desk, argv),
            C::Hello => self.hello(desk, argv),
            C::ConfigGet => config::get(desk, &argv[2..]),
            C::ConfigSet => config::set(desk, &argv[2..]),
            C::ConfigResetStat => config::reset_stat(desk),
            C::ConfigRewrite => config::rewrite(desk),
            C::Info => info::command(desk, argv),
            C::SlowLog(command) => observe::slow_log(desk, command, argv),
            C::Latency(command) => observe::latency(desk, command, argv),
            C::Memory(command) => memory::command(desk, command),
            C::Monitor => calls::NO_MONITOR_IN_BLOCK,
            C::BgSave | C::BgRewriteAof => admin::background_save(desk, command, argv),
            C::Wait => durability::wait(desk, &argv[1..]),
            C::LastSave => admin::last_save(desk),
            C::Role => info::role_command(desk),
            C::ScriptKill | C::FunctionKill => admin::script_kill(desk),
            C::PubSub(command) => Session::pubsub(desk, command, argv),
            C::Unwatch => self.unwatch(),
            C::Cluster(command) => Session::cluster(desk, command, argv),
            C::OrdoCluster(OrdoClusterCommand::Status) => Session::cluster_status(desk),
            C::OrdoCluster(OrdoClusterCommand::Map) => Session::cluster_map(desk, argv),
            C::Asking => Session::asking(desk),
            C::ReadOnly => self.set_readonly(desk, true),
            C::ReadWrite => self.set_readonly(desk, false),
            C::WaitAof => durability::synced_now(desk, &argv[1..]),
            C::SSubscribe => channels::NO_SHARDS_IN_BLOCK,
            C::AclLoad
            | C::Multi
            | C::Exec
            | C::Discard
            | C::Watch
            | C::Quit
            | C::Reset
            | C::Save
            | C::Shutdown
            | C::Subscribe
            | C::Unsubscribe
            | C::PSubscribe
            | C::PUnsubscribe
            | C::SUnsubscribe
            | C::ClientTracking
            | C::OrdoCluster(_) => redis_surface::errors::NOT_IN_BLOCK,
            client => self.client_command(desk, client, argv),
        }
    }

    /// SUBSCRIBE and its kin answer for themselves, once for each channel. False if the command is none of
    /// them.
    fn listen(&mut self, desk: &Desk<'_>, command: ConnectionCommand, argv: &Args) -> bool {
        let Some(confirmed) = self.confirmations(desk, command, &argv[1..]) else {
            return false;
        };
        for confirmed in confirmed {
            desk.counters.note_reply(&confirmed);
            // A push, as in Redis: CLIENT REPLY does not silence it.
            self.replies.push(&confirmed, self.protocol);
        }
        true
    }
}
