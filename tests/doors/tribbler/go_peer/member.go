package main

import (
	"fmt"
	"hash/fnv"
	"net/rpc"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	myID    = 1<<31 - 1
	theirID = 1<<32 - 1
)

// Node is a storage server that knows only what the course has told it.
type Node struct {
	mutex  sync.Mutex
	values map[string]string
	lists  map[string][]string
	reads  []GetArgs
	me     Client
}

func (node *Node) Get(args *GetArgs, reply *GetReply) error {
	node.mutex.Lock()
	defer node.mutex.Unlock()
	node.reads = append(node.reads, *args)
	value, found := node.values[args.Key]
	if !found {
		reply.Status = keyNotFound
		return nil
	}
	reply.Value = value
	if args.WantLease {
		reply.Lease = Lease{true, leaseSeconds}
	}
	return nil
}

func (node *Node) GetList(args *GetArgs, reply *GetListReply) error {
	node.mutex.Lock()
	defer node.mutex.Unlock()
	list, found := node.lists[args.Key]
	if !found {
		reply.Status = keyNotFound
	}
	reply.Value = list
	return nil
}

func (node *Node) Put(args *PutArgs, reply *StatusReply) error {
	node.mutex.Lock()
	defer node.mutex.Unlock()
	node.values[args.Key] = args.Value
	return nil
}

func (node *Node) AppendToList(args *PutArgs, reply *StatusReply) error {
	node.mutex.Lock()
	defer node.mutex.Unlock()
	if slices.Contains(node.lists[args.Key], args.Value) {
		reply.Status = itemExists
		return nil
	}
	node.lists[args.Key] = append(node.lists[args.Key], args.Value)
	return nil
}

func (node *Node) RemoveFromList(args *PutArgs, reply *StatusReply) error {
	node.mutex.Lock()
	defer node.mutex.Unlock()
	at := slices.Index(node.lists[args.Key], args.Value)
	if at < 0 {
		reply.Status = itemNotFound
		return nil
	}
	node.lists[args.Key] = slices.Delete(slices.Clone(node.lists[args.Key]), at, at+1)
	return nil
}

// Register is asked by the other node of a ring whose master this is.
func (node *Node) Register(args *RegisterArgs, reply *RegisterReply) error {
	reply.Ready = true
	reply.Clients = []Client{node.me, args.ClientInfo}
	return nil
}

// member is the second node of a ring whose master is ours.
func member(master string) {
	node := &Node{values: map[string]string{}, lists: map[string][]string{}}
	address := serve("StorageRPC", node)
	client, err := rpc.DialHTTP("tcp", master)
	must(err)
	var ring RegisterReply
	for !ring.Ready {
		must(client.Call("StorageRPC.Register", RegisterArgs{Client{address, myID}}, &ring))
	}
	expect("the ring", fmt.Sprint(ring.Clients), fmt.Sprint([]Client{{address, myID}, {master, theirID}}))
	ringOfTwo(node, client, master)
}

// master is the first node of a ring of two: the other is ours, and registers here.
func master(other string, address string) {
	node := &Node{values: map[string]string{}, lists: map[string][]string{}, me: Client{address, myID}}
	serveAt(address, "StorageRPC", node)
	client, err := rpc.DialHTTP("tcp", other)
	must(err)
	ringOfTwo(node, client, other)
}

// ringOfTwo asks the other node, which is ours; this one owns the lower half of the hashes.
func ringOfTwo(node *Node, client *rpc.Client, other string) {
	// Any key may be put and read at our node; those that are ours by Go's own hash come here.
	var mine []string
	for n := range 200 {
		key := fmt.Sprintf("%duser:x:y", n)
		expect("Put", status(client, "StorageRPC.Put", PutArgs{key, key}), ok)
		expect("what was put", get(client, key, "").Value, key)
		hash := fnv.New32()
		hash.Write([]byte(strings.Split(key, ":")[0]))
		_, here := node.values[key]
		expect("that "+key+" is here", here, hash.Sum32() <= myID)
		if here {
			mine = append(mine, key)
		}
	}
	expect("that keys are shared", len(mine) > 50 && len(mine) < 150, true)

	list := mine[0] + "list"
	expect("a list that is not there", getList(client, list, "").Status, keyNotFound)
	expect("AppendToList", status(client, "StorageRPC.AppendToList", PutArgs{list, "a"}), ok)
	expect("AppendToList again", status(client, "StorageRPC.AppendToList", PutArgs{list, "a"}), itemExists)
	expect("the list", fmt.Sprint(getList(client, list, "").Value), "[a]")
	expect("RemoveFromList", status(client, "StorageRPC.RemoveFromList", PutArgs{list, "a"}), ok)
	expect("RemoveFromList again", status(client, "StorageRPC.RemoveFromList", PutArgs{list, "a"}), itemNotFound)

	// A user whose keys are here posts and is read, though nobody here has heard of tribbles.
	user := UserArgs{strings.Split(mine[2], ":")[0]}
	expect("CreateUser", status(client, "Tribserver.CreateUser", user), ok)
	for n := range 10 {
		expect("PostTribble", status(client, "Tribserver.PostTribble", PostTribbleArgs{user.Userid, fmt.Sprint(n)}), ok)
	}
	var reply GetTribblesReply
	must(client.Call("Tribserver.GetTribbles", user, &reply))
	expect("the number of tribbles", len(reply.Tribbles), 10)
	for n, each := range reply.Tribbles {
		expect("the tribble", each.Contents, fmt.Sprint(9-n))
	}

	// The third question within five seconds wants a lease; then nobody asks, until the lease is revoked.
	key := mine[1] + "hot"
	expect("Put", status(client, "StorageRPC.Put", PutArgs{key, "v"}), ok)
	node.reads = nil
	begin := time.Now()
	for range 5 {
		expect("the value", get(client, key, "").Value, "v")
	}
	expect("RevokeLease", status(client, "StorageRPC.RevokeLease", RevokeLeaseArgs{key}), ok)
	expect("the value", get(client, key, "").Value, "v")
	if time.Since(begin) < leaseSeconds*time.Second {
		plain, wish := GetArgs{Key: key}, GetArgs{key, true, leaseClient(other, theirID)}
		expect("the questions", fmt.Sprint(node.reads), fmt.Sprint([]GetArgs{plain, plain, wish, wish}))
	}
}
