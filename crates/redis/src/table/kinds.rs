//! Which command of the connection, of the cluster, of users, or of scripts an entry stands for.

/// A command that is the business of the connection or of the server around it, which runs it outside any
/// transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionCommand {
    /// ACL GENPASS.
    AclGenPass,
    /// ACL LOAD.
    AclLoad,
    /// ACL LOG.
    AclLog,
    /// ACL SAVE.
    AclSave,
    /// ACL WHOAMI.
    AclWhoAmI,
    /// ASKING.
    Asking,
    /// AUTH.
    Auth,
    /// BGREWRITEAOF.
    BgRewriteAof,
    /// BGSAVE.
    BgSave,
    /// CLIENT CACHING.
    ClientCaching,
    /// CLIENT GETNAME.
    ClientGetName,
    /// CLIENT GETREDIR.
    ClientGetRedir,
    /// CLIENT ID.
    ClientId,
    /// CLIENT INFO.
    ClientInfo,
    /// CLIENT KILL.
    ClientKill,
    /// CLIENT LIST.
    ClientList,
    /// CLIENT NO-EVICT.
    ClientNoEvict,
    /// CLIENT NO-TOUCH.
    ClientNoTouch,
    /// CLIENT PAUSE.
    ClientPause,
    /// CLIENT REPLY.
    ClientReply,
    /// CLIENT SETINFO.
    ClientSetInfo,
    /// CLIENT SETNAME.
    ClientSetName,
    /// CLIENT TRACKING.
    ClientTracking,
    /// CLIENT TRACKINGINFO.
    ClientTrackingInfo,
    /// CLIENT UNBLOCK.
    ClientUnblock,
    /// CLIENT UNPAUSE.
    ClientUnpause,
    /// A subcommand of CLUSTER.
    Cluster(ClusterCommand),
    /// CONFIG GET.
    ConfigGet,
    /// CONFIG RESETSTAT.
    ConfigResetStat,
    /// CONFIG REWRITE.
    ConfigRewrite,
    /// CONFIG SET.
    ConfigSet,
    /// DISCARD.
    Discard,
    /// EXEC.
    Exec,
    /// FUNCTION KILL.
    FunctionKill,
    /// HELLO.
    Hello,
    /// INFO.
    Info,
    /// LASTSAVE.
    LastSave,
    /// A subcommand of LATENCY.
    Latency(LatencyCommand),
    /// A subcommand of MEMORY that tells of the server.
    Memory(MemoryCommand),
    /// MONITOR.
    Monitor,
    /// MULTI.
    Multi,
    /// A subcommand of ORDO.BACKUP.
    OrdoBackup(OrdoBackupCommand),
    /// ORDO.CHANGES.
    OrdoChanges,
    /// A subcommand of ORDO.CLUSTER.
    OrdoCluster(OrdoClusterCommand),
    /// PSUBSCRIBE.
    PSubscribe,
    /// A subcommand of PUBSUB.
    PubSub(PubSubCommand),
    /// PUNSUBSCRIBE.
    PUnsubscribe,
    /// QUIT.
    Quit,
    /// READONLY.
    ReadOnly,
    /// READWRITE.
    ReadWrite,
    /// RESET.
    Reset,
    /// ROLE.
    Role,
    /// SAVE.
    Save,
    /// A subcommand of SLOWLOG.
    SlowLog(SlowLogCommand),
    /// SSUBSCRIBE.
    SSubscribe,
    /// SUBSCRIBE.
    Subscribe,
    /// SUNSUBSCRIBE.
    SUnsubscribe,
    /// SCRIPT KILL.
    ScriptKill,
    /// SHUTDOWN.
    Shutdown,
    /// UNSUBSCRIBE.
    Unsubscribe,
    /// UNWATCH.
    Unwatch,
    /// WAIT.
    Wait,
    /// WAITAOF.
    WaitAof,
    /// WATCH.
    Watch,
}

/// A subcommand of PUBSUB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PubSubCommand {
    /// PUBSUB CHANNELS.
    Channels,
    /// PUBSUB NUMPAT.
    NumPat,
    /// PUBSUB NUMSUB.
    NumSub,
    /// PUBSUB SHARDCHANNELS.
    ShardChannels,
    /// PUBSUB SHARDNUMSUB.
    ShardNumSub,
}

/// A subcommand of SLOWLOG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowLogCommand {
    /// SLOWLOG GET.
    Get,
    /// SLOWLOG LEN.
    Len,
    /// SLOWLOG RESET.
    Reset,
}

/// A subcommand of LATENCY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyCommand {
    /// LATENCY DOCTOR.
    Doctor,
    /// LATENCY GRAPH.
    Graph,
    /// LATENCY HISTOGRAM.
    Histogram,
    /// LATENCY HISTORY.
    History,
    /// LATENCY LATEST.
    Latest,
    /// LATENCY RESET.
    Reset,
}

/// A subcommand of MEMORY that tells of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryCommand {
    /// MEMORY DOCTOR.
    Doctor,
    /// MEMORY MALLOC-STATS.
    MallocStats,
    /// MEMORY PURGE.
    Purge,
    /// MEMORY STATS.
    Stats,
}

/// A subcommand of CLUSTER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterCommand {
    /// CLUSTER COUNT-FAILURE-REPORTS.
    CountFailureReports,
    /// CLUSTER COUNTKEYSINSLOT.
    CountKeysInSlot,
    /// CLUSTER GETKEYSINSLOT.
    GetKeysInSlot,
    /// CLUSTER HELP.
    Help,
    /// CLUSTER INFO.
    Info,
    /// CLUSTER KEYSLOT.
    KeySlot,
    /// CLUSTER LINKS.
    Links,
    /// CLUSTER MYID.
    MyId,
    /// CLUSTER MYSHARDID.
    MyShardId,
    /// CLUSTER NODES.
    Nodes,
    /// CLUSTER REPLICAS and CLUSTER SLAVES.
    Replicas,
    /// CLUSTER SHARDS.
    Shards,
    /// CLUSTER SLOTS.
    Slots,
    /// CLUSTER FAILOVER: what Ordo does in another way, like the ones below.
    Failover,
    /// CLUSTER FORGET and CLUSTER RESET.
    Leave,
    /// CLUSTER MEET.
    Meet,
    /// CLUSTER REPLICATE.
    Replicate,
    /// CLUSTER BUMPEPOCH, SAVECONFIG and SET-CONFIG-EPOCH.
    KeepMap,
    /// CLUSTER ADDSLOTS, ADDSLOTSRANGE, DELSLOTS, DELSLOTSRANGE, FLUSHSLOTS and SETSLOT.
    PlaceSlots,
}

/// A subcommand of ORDO.BACKUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrdoBackupCommand {
    /// ORDO.BACKUP WHERE.
    Where,
    /// ORDO.BACKUP FILE.
    File,
    /// ORDO.BACKUP LOG.
    Log,
}

/// A subcommand of ORDO.CLUSTER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrdoClusterCommand {
    /// ORDO.CLUSTER STATUS.
    Status,
    /// ORDO.CLUSTER MAP.
    Map,
    /// ORDO.CLUSTER ADDNODE.
    AddNode,
    /// ORDO.CLUSTER FENCE.
    Fence,
    /// ORDO.CLUSTER MOVESLOTS.
    MoveSlots,
    /// ORDO.CLUSTER PLACE.
    Place,
    /// ORDO.CLUSTER REMOVENODE.
    RemoveNode,
    /// ORDO.CLUSTER SLOTKEYS.
    SlotKeys,
    /// ORDO.CLUSTER TRANSFER.
    Transfer,
}

/// A subcommand of ACL that reads or changes users: it needs to know who acts, and goes as
/// [`crate::acl::Acting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclCommand {
    /// ACL SETUSER.
    SetUser,
    /// ACL DELUSER.
    DelUser,
    /// ACL GETUSER.
    GetUser,
    /// ACL LIST.
    List,
    /// ACL USERS.
    Users,
    /// ACL DRYRUN.
    DryRun,
}

/// A command of the script engine that is a transaction of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptCommand {
    /// EVAL.
    Eval,
    /// EVAL_RO.
    EvalRo,
    /// EVALSHA.
    EvalSha,
    /// EVALSHA_RO.
    EvalShaRo,
    /// SCRIPT LOAD.
    Load,
    /// SCRIPT EXISTS.
    Exists,
    /// SCRIPT FLUSH.
    Flush,
    /// FCALL.
    Fcall,
    /// FCALL_RO.
    FcallRo,
    /// A subcommand of FUNCTION.
    Function(FunctionCommand),
}

impl ScriptCommand {
    /// Whether it runs a script or a function, which may touch keys that its words do not tell.
    pub fn runs_code(self) -> bool {
        use ScriptCommand::*;
        matches!(self, Eval | EvalRo | EvalSha | EvalShaRo | Fcall | FcallRo)
    }
    /// Whether it runs a script or a function that may write.
    pub fn may_write_keys(self) -> bool {
        use ScriptCommand::*;
        matches!(self, Eval | EvalSha | Fcall)
    }
    /// Whether it changes what every partition keeps a copy of.
    pub fn is_everywhere(self) -> bool {
        match self {
            ScriptCommand::Load | ScriptCommand::Flush => true,
            ScriptCommand::Function(command) => command.writes(),
            _ => false,
        }
    }
}

/// A subcommand of FUNCTION that is a transaction of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionCommand {
    /// FUNCTION DELETE.
    Delete,
    /// FUNCTION DUMP.
    Dump,
    /// FUNCTION FLUSH.
    Flush,
    /// FUNCTION LIST.
    List,
    /// FUNCTION LOAD.
    Load,
    /// FUNCTION RESTORE.
    Restore,
    /// FUNCTION STATS.
    Stats,
}

impl FunctionCommand {
    /// Whether it changes the libraries.
    pub fn writes(self) -> bool {
        use FunctionCommand::*;
        matches!(self, Delete | Flush | Load | Restore)
    }
}
