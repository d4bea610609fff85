package main

// What the services take and answer, as the course's programs declare it.

type Lease struct {
	Granted      bool
	ValidSeconds int
}

type GetArgs struct {
	Key         string
	WantLease   bool
	LeaseClient LeaseClient
}

type GetReply struct {
	Status int
	Value  string
	Lease  Lease
}

type GetListReply struct {
	Status int
	Value  []string
	Lease  Lease
}

type PutArgs struct{ Key, Value string }

type StatusReply struct{ Status int }

type RevokeLeaseArgs struct{ Key string }

type Client struct {
	HostPort string
	NodeID   uint32
}

type RegisterArgs struct{ ClientInfo Client }

type RegisterReply struct {
	Ready   bool
	Clients []Client
}

type UserArgs struct{ Userid string }

type SubscriptionArgs struct{ Userid, Targetuser string }

type PostTribbleArgs struct{ Userid, Contents string }

type GetSubscriptionsReply struct {
	Status  int
	Userids []string
}

type Tribble struct {
	Userid   string
	Posted   int64
	Contents string
}

type GetTribblesReply struct {
	Status   int
	Tribbles []Tribble
}

const (
	ok           = 0
	keyNotFound  = 1
	itemNotFound = 2
	putFailed    = 3
	itemExists   = 4

	noSuchUser       = 1
	noSuchTargetUser = 2
	exists           = 3
)
