package linerate;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpObject;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;

/** {@code Server HOST PORT}: / at once, /delay/10 after 10 ms by the loop's timer, /block/10 by a sleep that blocks the loop. */
public final class Server {
    private static final ByteBuf HELLO = Unpooled.unreleasableBuffer(
        Unpooled.directBuffer().writeBytes("Hello, World!\n".getBytes(StandardCharsets.US_ASCII)));

    public static void main(String[] args) throws Exception {
        NioEventLoopGroup acceptor = new NioEventLoopGroup(1);
        NioEventLoopGroup workers = new NioEventLoopGroup();
        ServerBootstrap bootstrap = new ServerBootstrap()
            .group(acceptor, workers)
            .channel(NioServerSocketChannel.class)
            .option(ChannelOption.SO_BACKLOG, 4096)
            .childOption(ChannelOption.TCP_NODELAY, true)
            .childHandler(new ChannelInitializer<SocketChannel>() {
                @Override
                protected void initChannel(SocketChannel channel) {
                    ChannelPipeline pipeline = channel.pipeline();
                    pipeline.addLast(new HttpServerCodec());
                    pipeline.addLast(new Handler());
                }
            });
        bootstrap.bind(new InetSocketAddress(args[0], Integer.parseInt(args[1]))).sync().channel().closeFuture().sync();
    }

    private static final class Handler extends SimpleChannelInboundHandler<HttpObject> {
        @Override
        protected void channelRead0(ChannelHandlerContext context, HttpObject message) throws Exception {
            if (!(message instanceof HttpRequest)) {
                return;
            }
            HttpRequest request = (HttpRequest) message;
            boolean keep = HttpUtil.isKeepAlive(request);
            boolean old = request.protocolVersion().equals(HttpVersion.HTTP_1_0);
            switch (request.uri()) {
                case "/delay/10":
                    context.executor().schedule(() -> {
                        answer(context, keep, old);
                        context.flush();
                    }, 10, TimeUnit.MILLISECONDS);
                    break;
                case "/block/10":
                    Thread.sleep(10);
                    answer(context, keep, old);
                    break;
                default:
                    answer(context, keep, old);
            }
        }

        private static void answer(ChannelHandlerContext context, boolean keep, boolean old) {
            DefaultFullHttpResponse response =
                new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, HttpResponseStatus.OK, HELLO.duplicate());
            response.headers()
                .set(HttpHeaderNames.CONTENT_TYPE, "text/plain; charset=utf-8")
                .setInt(HttpHeaderNames.CONTENT_LENGTH, HELLO.readableBytes());
            if (!keep) {
                response.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.CLOSE);
                context.write(response).addListener(ChannelFutureListener.CLOSE);
            } else {
                if (old) {
                    response.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.KEEP_ALIVE);
                }
                context.write(response, context.voidPromise());
            }
        }

        /** Answers of one read leave in one write. */
        @Override
        public void channelReadComplete(ChannelHandlerContext context) {
            context.flush();
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            context.close();
        }
    }
}
